"""The command line: what others' flags and mistyped commands get told. Nothing here starts a server but the last."""
import re
import subprocess

from conftest import BIN, MODEL, start_server


def quire(*arguments):
    done = subprocess.run([BIN, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_unknown_commands_suggest_the_near_one():
    for typed, meant in (("sevre", "serve"), ("quantise", "quantize"), ("bnech", "bench")):
        code, text = quire(typed, MODEL)
        assert code != 0 and f"there is no command `{typed}`; did you mean `{meant}`?" in text
    code, text = quire("bench", "troughput", MODEL)
    assert code != 0 and "did you mean `throughput`?" in text


def test_output_that_nobody_gets_is_no_success():
    for command in (("show", MODEL), ("run", MODEL, "Once", "--max-tokens", "2"), ("--version",), ("serve", "--help")):
        with open("/dev/full", "w") as full:
            done = subprocess.run([BIN, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 1 and done.stderr.endswith("quire: standard output cannot be written\n"), done
        done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", BIN, *command], stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 1, done


def test_unknown_flags_suggest_the_near_one():
    code, text = quire("serve", MODEL, "--max-modle-len", "64")
    assert code != 0 and "did you mean --max-model-len?" in text
    code, text = quire("serve", MODEL, "--colour", "red")
    assert code == 109 and text == "quire: not expected here: --colour red; see --help\n"


def test_flags_that_would_change_something_are_refused_by_name():
    for flags, told in ((("--tensor-parallel-size", "2"), "--tensor-parallel-size 2"),
                        (("--cpu-offload-gb=4",), "--cpu-offload-gb 4"),
                        (("--quantization", "awq"), "quire quantize"),
                        (("-c", "4096"), "--max-model-len"),
                        (("-ngl", "99"), "--device cuda"),
                        (("-t", "4"), "--threads")):
        code, text = quire("serve", MODEL, *flags)
        assert code != 0 and flags[0].split("=")[0] in text and told in text, text


def test_limits_that_could_do_nothing_end_the_start():
    for flags, told in ((("--min-priority", "0"), ("--min-priority", "--scheduling-policy priority")),
                        (("--max-body-size", "200MiB"), ("--max-body-size", "--max-buffered-bytes")),
                        (("--max-body-size", "9MiB", "--max-buffered-bytes", "16MiB"),
                         ("--max-body-size", "--max-buffered-bytes")),
                        (("--max-buffered-bytes", "512"), ("--max-buffered-bytes", "1MiB")),
                        (("--ssl-keyfile", "key.pem"), ("--ssl-keyfile", "--ssl-certfile")),
                        (("--uds-mode", "660"), ("--uds-mode", "--uds"))):
        code, text = quire("serve", MODEL, "--port", "0", *flags)
        assert code == 1 and all(word in text for word in told), text
    for flags, told in ((("--disable-access-log-for-endpoints", "/metrics,health"), ("health", "begin with /")),):
        code, text = quire("serve", MODEL, "--port", "0", *flags)
        assert 100 <= code <= 127 and all(word in text for word in told), text


def test_a_step_time_is_no_negative_number():
    code, text = quire("serve", MODEL, "--max-step-time", "-0.5")
    assert code != 0 and "--max-step-time" in text, text


def test_values_that_are_empty_or_no_number_end_the_start():
    for flag in ("--host", "--uds", "--ssl-certfile", "--ssl-keyfile"):
        code, text = quire("serve", MODEL, "--port", "0", flag, "")
        assert code != 0 and f"{flag}: is empty" in text, text
    for flag in ("--max-step-time", "--sse-ping-interval", "--gpu-memory-utilization"):
        code, text = quire("serve", MODEL, "--port", "0", flag, "nan")
        assert code != 0 and f"{flag}: must be a number" in text, text
    code, text = quire("serve", MODEL, "--port", "0", "--served-model-name", "")
    assert code != 0 and "--served-model-name: is empty" in text, text
    for path in ("quire", "/quire/", "/"):
        code, text = quire("serve", MODEL, "--port", "0", "--root-path", path)
        assert code != 0 and "--root-path: must begin with / and not end with it" in text, text


def test_run_has_no_flags_of_a_queue():
    code, text = quire("run", "--help")
    assert code == 0
    for flag in ("--scheduling-policy", "--max-num-queued-reqs", "--max-num-queued-tokens", "--max-step-time"):
        assert flag not in text


def test_values_of_options_are_no_flags_of_others():
    code, text = quire("run", MODEL, "Hi", "--system", "--jinja", "--max-tokens", "1")
    assert code == 0, text


def test_help_has_groups_and_no_flag_outside_them():
    for command in ("serve", "run"):
        code, text = quire(command, "--help")
        assert code == 0
        headings = re.findall(r"^(\S.*):$", text, re.M)
        assert {"Model", "Memory", "Scheduling"} <= set(headings), headings
        section, outside = "", []
        for line in text.splitlines():
            if match := re.match(r"(\S.*):$", line):
                section = match[1]
            elif section == "Options" and (match := re.match(r"\s+(?:-h,)?(--[\w-]+)", line)):
                outside.append(match[1])
        assert outside == ["--help"], outside


def test_keys_take_one_value_and_foreign_flags_are_dropped_with_a_line():
    flags = ("--api-key", "first", "--api-key", "second", "--swap-space", "4", "--enable-chunked-prefill",
             "--enable-auto-tool-choice", "--tensor-parallel-size", "1", "--disable-access-log-for-endpoints", "/health,/metrics")
    # The model comes last: a key that took several values would swallow it.
    with start_server(*flags, MODEL, model="--portable-bits") as server:
        for key in ("first", "second"):
            assert server.get("/v1/models", headers={"Authorization": f"bearer {key}"}).status == 200
            assert server.get("/metrics", headers={"Authorization": f"BEARER {key}"}).status == 200
        assert server.get("/health").status == 200
        assert server.get("/version", headers={"X-Api-Key": "first", "X-Request-Id": "the-last"}).status == 200
        server.wait_until(lambda: any("the-last" in line for line in server.log))
        text = "".join(server.log)
    for told in ("--swap-space 4 changes nothing", "--enable-chunked-prefill changes nothing",
                 "--enable-auto-tool-choice changes nothing",
                 "--tensor-parallel-size 1 changes nothing"):
        assert text.count(told) == 1, text
    assert "/health" not in text and "/metrics" not in text and '"/v1/models" 200 id=' in text
