"""A key comes from where run.toml says; where it is missing or no key, that is said without showing anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.config import ApiConfig
from backend.job.api_key import NoKeyError, read_key


def api(**where: str) -> ApiConfig:
    return ApiConfig(base_url="https://x/v1", model="m", **where)  # type: ignore[arg-type]


def test_a_key_comes_from_a_variable_or_from_a_file_without_its_line_break(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    assert read_key(api(api_key_env="K"), {"K": " sk-2 "}, tmp_path) == "sk-2"
    assert read_key(api(api_key_file=str(tmp_path / "key")), {}, tmp_path) == "sk-1"
    assert read_key(api(api_key_file="key"), {}, tmp_path) == "sk-1"
    assert read_key(api(), {}, tmp_path) is None


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ({"api_key_env": "K"}, "the variable K is not set"),
        ({"api_key_env": "EMPTY"}, "the variable EMPTY is not set"),
        ({"api_key_file": "missing"}, "the key cannot be read from missing: No such file"),
        ({"api_key_file": "."}, "the key cannot be read from .: Is a directory"),
        ({"api_key_file": "empty"}, "empty is empty. Put the key there."),
        ({"api_key_file": "prose"}, "what prose holds is no key"),
    ],
)
def test_what_is_no_key_is_said_and_never_shown(tmp_path: Path, where: dict[str, str], words: str) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "prose").write_text("my secret sentence\nof two lines")
    with pytest.raises(NoKeyError) as caught:
        read_key(api(**where), {"EMPTY": ""}, tmp_path)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
