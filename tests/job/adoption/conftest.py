"""What tests of adoption share."""

from tests.report.export.conftest import word_tokenizer

__all__ = ["word_tokenizer"]
