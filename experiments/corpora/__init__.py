"""Small text corpora from packages of PyPI, npm and Debian, for the demo and the study."""
