"""The package list: every package below cleave/, and the folder rules/ under its import name cleave_rules.

pyproject.toml can either search for packages or list them; this project needs both.
"""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["cleave", "cleave.*"]), "cleave_rules"],
    package_dir={"cleave_rules": "rules"},
    package_data={
        "cleave": ["py.typed", "**/*.cu", "**/*.cuh", "**/*.h", "**/*.hpp", "**/*.cpp"],
        "cleave_rules": ["*.egg", "README.md"],
    },
)
