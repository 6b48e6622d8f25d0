import pytest

from gpt2cli.errors import GPT2Error
from gpt2cli.naming import DEFAULT, Model, parse_model
from gpt2cli.presets import PRESETS, weights_folder


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        (DEFAULT, "openai-community/gpt2"),
        ("gpt2-medium", "openai-community/gpt2-medium"),
        ("gpt2-large", "openai-community/gpt2-large"),
        ("gpt2-xl", "openai-community/gpt2-xl"),
        ("distilgpt2", "distilbert/distilgpt2"),
        ("124M", "openai-community/gpt2"),
        ("117M", "openai-community/gpt2"),
        ("355M", "openai-community/gpt2-medium"),
        ("345M", "openai-community/gpt2-medium"),
        ("774M", "openai-community/gpt2-large"),
        ("1558M", "openai-community/gpt2-xl"),
    ],
)
def test_released_sizes_are_known_by_the_hubs_names_and_by_openais(name, repository):
    model = parse_model(name)
    assert model == Model(name, model.preset, repository=repository)
    assert model.preset is not None
    assert model.preset.repository == repository


def test_a_revision_may_follow_a_released_size():
    model = parse_model("124M@607a30d")
    assert (model.name, model.revision) == ("124M@607a30d", "607a30d")
    assert model.preset == PRESETS["gpt2"]


def test_austen_is_the_folder_that_ships_with_the_program(tmp_path):
    (tmp_path / "austen").mkdir()
    assert parse_model("austen") == Model("austen", path=weights_folder() / "austen")


def test_a_name_goes_before_a_folder_of_that_name_which_a_dot_and_slash_reach(tmp_path):
    (tmp_path / "gpt2").mkdir()
    assert parse_model("gpt2").path is None
    assert parse_model("./gpt2").path.resolve() == tmp_path / "gpt2"


@pytest.mark.parametrize("text", ["mine", "owner/name", "~/mine", "model.safetensors", "a@b"])
def test_a_path_that_exists_is_taken_as_it_is(tmp_path, text):
    place = tmp_path / text.removeprefix("~/")
    place.parent.mkdir(exist_ok=True)
    place.touch()
    model = parse_model(text)
    assert model.path.resolve() == place
    assert (model.preset, model.repository, model.revision) == (None, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "/nowhere/at/all",
        "./mine",
        "../mine",
        "~/mine",
        "~nobody-of-this-name/mine",
        "owner/model.safetensors",
        "pytorch_model.bin",
        "ckpt.pt",
        "model.GGUF",
        "model.ckpt.index",
        "model.safetensors.index.json",
        "a/b/c",
        "a/b/c/d@e",
        "owner/",
        "./" + 300 * "x",
        "./nul\0",
    ],
)
def test_what_looks_like_a_path_and_is_missing_is_never_asked_of_the_hub(text):
    with pytest.raises(GPT2Error, match="no file or folder"):
        parse_model(text)


@pytest.mark.parametrize(
    ("text", "repository", "revision"),
    [
        ("owner/name", "owner/name", None),
        ("microsoft/DialoGPT-small", "microsoft/DialoGPT-small", None),
        ("o/n.a_m-e@v1.0", "o/n.a_m-e", "v1.0"),
        ("owner/name@refs/pr/1", "owner/name", "refs/pr/1"),
        ("owner/name@" + "a1" * 20, "owner/name", "a1" * 20),
    ],
)
def test_owner_and_name_are_a_repository_on_the_hub(text, repository, revision):
    assert parse_model(text) == Model(text, repository=repository, revision=revision)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("gtp2", "gpt2"),
        ("GPT2", "gpt2"),
        ("austin", "austen"),
        ("Austen", "austen"),
        ("gpt2-XL", "gpt2-xl"),
        ("124m", "124M"),
        ("gpt2_medium@main", "gpt2-medium"),
    ],
)
def test_a_near_miss_is_told_what_was_meant(text, meant):
    with pytest.raises(GPT2Error) as refused:
        parse_model(text)
    assert str(refused.value).endswith(f"is called {text!r}; did you mean {meant}?")


def test_an_empty_name_is_refused_by_name():
    with pytest.raises(GPT2Error, match="MODEL is empty"):
        parse_model("")


def test_json_beside_a_checkpoint_is_sent_to_its_folder(tmp_path):
    for name in ("config.json", "model.safetensors.index.json"):
        (tmp_path / name).touch()
    with pytest.raises(GPT2Error, match=f"is JSON and no checkpoint; give its folder, {tmp_path}"):
        parse_model(str(tmp_path / "config.json"))
    assert parse_model(str(tmp_path / "model.safetensors.index.json")).path is not None


NO_SHAPE = "small a--b/c a/b..c -a/b a/b- .a/b a/b. owner/name.git http://a/b a:b/c"


@pytest.mark.parametrize("text", ["own er/name", "a/b\n", "o/" + 96 * "n", *NO_SHAPE.split()])
def test_what_has_no_shape_of_a_model_is_refused_with_the_names_that_are_known(text):
    with pytest.raises(GPT2Error, match=r"austen, gpt2, .*owner/name") as caught:
        parse_model(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["gpt2@", "owner/name@", "owner/name@../../x", "owner/name@a b", "owner/name@a@b", "gpt2@/a"],
)
def test_a_revision_that_git_could_not_have_is_refused(text):
    with pytest.raises(GPT2Error, match="is no name of a branch, tag or commit; write name@"):
        parse_model(text)


def test_austen_has_no_revisions():
    with pytest.raises(GPT2Error, match="ships with the program"):
        parse_model("austen@main")
