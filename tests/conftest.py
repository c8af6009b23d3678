"""What every test shares: fresh random data with a printed seed, golden files, and the marker of its folder."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
SEED_VARIABLE = "CLEAVE_TEST_SEED"
FOLDER_MARKERS = ("gpu", "slow")

# A shared two-core machine stalls at times: a time limit for one example would fail at random.
settings.register_profile("cleave", deadline=None)
settings.load_profile("cleave")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files of tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    # Set before xdist starts its workers, which inherit it: one seed a run.
    os.environ.setdefault(SEED_VARIABLE, str(np.random.SeedSequence().generate_state(1)[0]))


def pytest_report_header(config: pytest.Config) -> str:
    return f"random data: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]} (set it to repeat this run)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in FOLDER_MARKERS:
            item.add_marker(folder)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A generator that depends on the seed of the run and on the test, not on the order of tests."""
    return np.random.default_rng([int(os.environ[SEED_VARIABLE]), *request.node.nodeid.encode()])


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with the file of that name in tests/golden; ``--update-golden`` rewrites it."""

    def compare(name: str, text: str) -> None:
        path = TESTS / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} does not exist; --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; --update-golden rewrites it"

    return compare
