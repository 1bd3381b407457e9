"""Flags from --config FILE and from QUIRE_* variables."""
import subprocess

from conftest import BIN, MODEL, start_server


def served(server):
    entry = server.get("/v1/models").json()["data"][0]
    return entry["id"], entry["max_model_len"]


def test_a_file_and_variables_give_what_the_command_line_does_not(tmp_path, monkeypatch):
    config = tmp_path / "quire.conf"
    config.write_text("# a server\nserved-model-name: from-file\nmax_model_len = 64\nenable-prefix-caching: false\n")
    with start_server("--config", str(config)) as server:
        assert served(server) == ("from-file", 64)
    monkeypatch.setenv("QUIRE_CONFIG", str(config))
    monkeypatch.setenv("QUIRE_MAX_MODEL_LEN", "48")
    with start_server() as server:
        assert served(server) == ("from-file", 48)
    with start_server("--max-model-len", "32", "--served-model-name", "typed") as server:
        assert served(server) == ("typed", 32)


def test_the_model_too(tmp_path, monkeypatch):
    config = tmp_path / "quire.conf"
    config.write_text(f"model: {MODEL}\ndevice: cpu\nmax-tokens: 2\n")
    done = subprocess.run([BIN, "run", "--config", config], input="Hello\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "cut at 2 tokens" in done.stderr, done.stderr


def test_what_no_flag_is_ends_the_start(tmp_path, monkeypatch):
    config = tmp_path / "quire.conf"
    for text, told in (("prot: 1\n", ":1: there is no flag --prot; did you mean port?"), ("port: many\n", "--port"),
                       ("  port: 1\n", "indented"), ("disable-access-log: perhaps\n", "true or false")):
        config.write_text(text)
        done = subprocess.run([BIN, "serve", MODEL, "--config", config], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0 and told in done.stderr, done.stderr
    done = subprocess.run([BIN, "serve", MODEL, "--config", tmp_path / "none"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "/none: cannot open the file" in done.stderr
    monkeypatch.setenv("QUIRE_PROT", "1")
    done = subprocess.run([BIN, "serve", MODEL, "--port", "x"], capture_output=True, text=True, timeout=60)
    assert "QUIRE_PROT is no variable of this command; did you mean QUIRE_PORT?" in done.stderr


def test_flags_of_vllm_that_change_nothing_are_accepted_with_a_line(tmp_path):
    config = tmp_path / "quire.conf"
    config.write_text("swap-space: 4\nport: none\n")
    done = subprocess.run([BIN, "serve", MODEL, "--config", config], capture_output=True, text=True, timeout=60)
    assert f"{config}:1: --swap-space 4 changes nothing: " in done.stderr and "--port" in done.stderr, done.stderr
    config.write_text("port: 0\nquantization: awq\n")
    done = subprocess.run([BIN, "serve", MODEL, "--config", config], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and f"{config}:2: --quantization awq: not supported: " in done.stderr, done.stderr
