"""Packages of the wheel: those of `specdemo`, and `assets/`, which stands beside them and goes inside."""

from __future__ import annotations

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["specdemo", "specdemo.*"]), "specdemo.assets"],
    package_dir={"specdemo.assets": "assets"},
)
