"""The CPU engine's installation, with its slow steps replaced by quick ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from backend.engine_cpu import install as installation
from backend.engine_cpu.install import InstallError, check_machine, hash_of, install, read_pins, torch_steps
from backend.engine_cpu.place import EnginePlace, missing_reason

CHECKOUT = Path(__file__).resolve().parents[2]
PINS = "torch==1.0\ntorchvision==2.0\nsglang==3.0\n"


class Steps:
    """Stands for the processes of an installation: does on disk what they would, and remembers them."""

    def __init__(self, place: EnginePlace) -> None:
        self.place = place
        self.commands: list[list[str]] = []
        self.fail_on = ""

    def __call__(self, command: list[str], doing: str, env: Mapping[str, str] | None = None) -> None:
        self.commands.append(command)
        if self.fail_on and self.fail_on in command:
            raise InstallError(f"{doing} failed (1):\n    no such package")
        if "venv" in command:
            self.place.python.parent.mkdir(parents=True, exist_ok=True)
            self.place.python.touch()
        if "make_model.py" in command[1]:
            folder = Path(command[2])
            folder.mkdir()
            (folder / "config.json").write_text("{}")


@pytest.fixture
def place(tmp_path: Path) -> EnginePlace:
    (tmp_path / "requirements-engine-cpu.txt").write_text(PINS)
    return EnginePlace(tmp_path)


@pytest.fixture
def steps(place: EnginePlace, monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps(place)
    monkeypatch.setattr(installation, "_run", steps)
    monkeypatch.delenv("TORCH_INDEX_URL", raising=False)
    return steps


def test_a_second_installation_does_nothing(place: EnginePlace, steps: Steps) -> None:
    assert missing_reason(place) == f"{place.python} is missing: run `make engine-cpu`"
    assert install(place) is True
    assert missing_reason(place) is None
    count = len(steps.commands)
    assert install(place) is False
    assert len(steps.commands) == count


def test_an_interrupted_installation_starts_over(place: EnginePlace, steps: Steps) -> None:
    steps.fail_on = "-r"
    with pytest.raises(InstallError, match="no such package"):
        install(place)
    steps.fail_on, steps.commands = "", []
    assert install(place) is True
    assert steps.commands[0] == [sys.executable, "-m", "venv", "--clear", str(place.venv)]
    assert missing_reason(place) is None


def test_a_changed_list_is_installed_again_and_the_model_stays(place: EnginePlace, steps: Steps) -> None:
    install(place)
    place.requirements.write_text(PINS + "numpy==4.0\n")
    steps.commands = []
    assert install(place) is True
    assert not any("make_model.py" in word for command in steps.commands for word in command)


def test_a_model_that_is_gone_is_made_again_alone(place: EnginePlace, steps: Steps) -> None:
    install(place)
    (place.model / "config.json").unlink()
    steps.commands = []
    assert install(place) is True
    assert [Path(command[1]).name for command in steps.commands] == ["make_model.py"]


def test_a_second_installation_waits_for_the_first(place: EnginePlace, steps: Steps) -> None:
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(install(place))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(results) == [False, True]


def test_the_named_index_is_tried_first_and_the_ordinary_one_after_it(
    place: EnginePlace, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = "https://wheels.example/cpu"
    monkeypatch.setenv("TORCH_INDEX_URL", index)
    steps.fail_on = index
    install(place)
    torch = [command for command in steps.commands if "torch==1.0" in command]
    assert [index in command for command in torch] == [True, False]


def test_without_an_index_torch_comes_from_the_ordinary_one() -> None:
    assert torch_steps(["pip"], {"torch": "1.0", "torchvision": "2.0"}, None) == [["pip", "install", "torch==1.0"]]


def test_a_missing_list_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="complete checkout"):
        install(EnginePlace(tmp_path))


def test_a_python_without_ensurepip_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InstallError, match="apt-get install python3-venv"):
        check_machine(tmp_path)


def test_a_full_disk_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "DISK_NEEDED_GB", 10_000_000.0)
    with pytest.raises(InstallError, match="GB free, 10000000 GB needed"):
        check_machine(tmp_path)


def test_a_failing_step_shows_the_end_of_its_output() -> None:
    with pytest.raises(InstallError, match=r"trying failed \(3\):\n    because of this\n"):
        installation._run([sys.executable, "-c", "print('because of this'); raise SystemExit(3)"], "trying")


def test_every_line_of_the_list_has_an_exact_version(tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("# why\n\ntorch==1.0  # because\nnumpy>=2\n")
    with pytest.raises(InstallError, match=r"list.txt:4: 'numpy>=2' has no exact version"):
        read_pins(listed)


def test_the_committed_lists_name_the_same_sglang() -> None:
    on_cpu, on_gpu = (read_pins(CHECKOUT / f"requirements-{name}.txt") for name in ("engine-cpu", "gpu"))
    assert on_cpu["sglang"] == on_gpu["sglang"]


def test_the_hash_tells_where_one_file_ends(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "b").write_text("two")
    (tmp_path / "c").write_text("onetwo")
    (tmp_path / "d").write_text("")
    assert hash_of([tmp_path / "a", tmp_path / "b"]) != hash_of([tmp_path / "c", tmp_path / "d"])


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "backend.engine_cpu"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("engine-cpu: ")
    assert "requirements-engine-cpu.txt is missing" in done.stderr
    assert "Traceback" not in done.stderr
