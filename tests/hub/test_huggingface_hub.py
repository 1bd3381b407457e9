"""The client that everybody has, unmodified, against the same hub, and the cache that both keep."""
import hashlib
import shutil

import huggingface_hub
import pytest
from fake_hub import Repo
from hub_quire import hub, model_files, quire  # noqa: F401 (fixtures)
from huggingface_hub.errors import (GatedRepoError, LocalEntryNotFoundError, RemoteEntryNotFoundError,
                                    RepositoryNotFoundError, RevisionNotFoundError)


def snapshot(quire, name="org/tiny", **more):
    return huggingface_hub.snapshot_download(name, endpoint=quire.hub.url, cache_dir=quire.cache, token=more.pop("token", False),
                                             **more)


def test_the_client_passes_against_this_hub(quire, hub):
    repo = hub.repos["org/tiny"]
    api = huggingface_hub.HfApi(endpoint=hub.url, token=False)
    assert api.model_info("org/tiny").sha == repo.commit
    assert set(api.list_repo_files("org/tiny")) == set(repo.files)
    assert {f.path: f.size for f in api.list_repo_tree("org/tiny", recursive=True)} == \
        {name: len(data) for name, data in repo.files.items()}
    folder = snapshot(quire)
    for name, data in repo.files.items():
        with open(f"{folder}/{name}", "rb") as file:
            assert file.read() == data
    metadata = huggingface_hub.get_hf_file_metadata(huggingface_hub.hf_hub_url("org/tiny", "model.safetensors", endpoint=hub.url),
                                                    token=False, endpoint=hub.url)
    assert metadata.etag == hashlib.sha256(repo.files["model.safetensors"]).hexdigest()
    assert metadata.size == len(repo.files["model.safetensors"]) and metadata.location.startswith(hub.store_url)
    tokens = {headers.get("Authorization") for server, _, _, headers in hub.log if server == "store"}
    assert tokens == {None}


def test_the_client_meets_the_same_refusals(quire, hub):
    hub.repos["org/gated"] = Repo(model_files("qwen3"), gated=True)
    hub.repos["org/secret"] = Repo(model_files("qwen3"), private=True)

    def get(name, file="config.json", **more):
        return huggingface_hub.hf_hub_download(name, file, endpoint=hub.url, cache_dir=quire.cache,
                                               token=more.pop("token", False), **more)

    for error, arguments in ((RepositoryNotFoundError, ("org/absent",)), (RepositoryNotFoundError, ("org/secret",)),
                             (GatedRepoError, ("org/gated",)), (RemoteEntryNotFoundError, ("org/tiny", "none.json"))):
        with pytest.raises(error):
            get(*arguments)
    with pytest.raises(GatedRepoError):
        get("org/gated", token="hf_stranger")
    with pytest.raises(RevisionNotFoundError):
        get("org/tiny", revision="v9")
    get("org/gated", token="hf_good")
    get("org/secret", token="hf_good")


def test_the_client_reads_our_cache(quire, hub):
    folder = quire.pull()
    hub.log.clear()
    for file in folder.iterdir():
        assert huggingface_hub.hf_hub_download("org/tiny", file.name, cache_dir=quire.cache, local_files_only=True) == str(file)
    assert huggingface_hub.try_to_load_from_cache("org/tiny", "model.safetensors", cache_dir=quire.cache) == \
        str(folder / "model.safetensors")
    assert snapshot(quire, local_files_only=True) == str(folder)
    with pytest.raises(LocalEntryNotFoundError):
        huggingface_hub.hf_hub_download("org/tiny", "README.md", cache_dir=quire.cache, local_files_only=True)
    assert hub.requests() == []
    # Online it fetches what we left out, and no more.
    assert snapshot(quire) == str(folder)
    assert hub.requests("store") and not any("model.safetensors" in path for method, path in hub.requests("hub", "GET")
                                             if "/resolve/" in path)
    cache = huggingface_hub.scan_cache_dir(quire.cache)
    assert not cache.warnings and [(repo.repo_id, repo.repo_type) for repo in cache.repos] == [("org/tiny", "model")]
    [revision] = next(iter(cache.repos)).revisions
    assert revision.refs == {"main"} and revision.commit_hash == hub.repos["org/tiny"].commit


def test_we_read_the_clients_cache(quire, hub):
    folder = snapshot(quire)
    hub.log.clear()
    assert str(quire.pull()) == folder
    assert hub.requests() == [("GET", "/api/models/org/tiny/revision/main")]
    hub.close()
    code, out, err = quire("run", "org/tiny", "Hello", "--max-tokens", "2", "--device", "cpu", HF_HUB_OFFLINE="1")
    assert code == 0, err


def test_we_complete_what_the_client_began(quire, hub):
    huggingface_hub.hf_hub_download("org/tiny", "model.safetensors", endpoint=hub.url, cache_dir=quire.cache, token=False)
    hub.log.clear()
    folder = quire.pull()
    assert (folder / "model.safetensors").read_bytes() == hub.repos["org/tiny"].files["model.safetensors"]
    assert not any(path.endswith(hub.repos["org/tiny"].etag("model.safetensors")) for _, path in hub.requests("store"))


def test_we_read_a_cache_whose_blobs_are_shared(quire, hub):
    """Since 2.0 its blobs may be links into CACHE/blobs, which all models share."""
    folder = quire.pull()
    repo = hub.repos["org/tiny"]
    blob = quire.cache / "models--org--tiny/blobs" / repo.etag("model.safetensors")
    shared = quire.cache / "blobs/ab" / ("ab" * 32)
    shared.parent.mkdir(parents=True)
    shutil.move(blob, shared)
    blob.symlink_to(f"../../blobs/ab/{shared.name}")
    hub.log.clear()
    assert quire.pull() == folder and not hub.requests("store")
    (folder / "model.safetensors").unlink()
    assert quire.pull() == folder and not hub.requests("store")
    assert (folder / "model.safetensors").read_bytes() == repo.files["model.safetensors"]
