#!/usr/bin/env python3
"""The report finds what it is made to find. Run by e2e/others/run."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
EXPECTED = """
# a comment
client | at least | 3
client | known | a reason
"""


def report(lines, expected=EXPECTED):
    """Returns the exit code and the output for the log of one client."""
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "expected.txt").write_text(expected)
        (directory / "client.log").write_text("".join(f"--- {line}\n" for line in lines))
        command = [sys.executable, HERE / "report.py", directory / "expected.txt", directory, "client"]
        ended = subprocess.run(command, capture_output=True, text=True)
        return ended.returncode, ended.stdout + ended.stderr


class Report(unittest.TestCase):
    def check(self, lines, text, expected=EXPECTED):
        code, output = report(lines, expected)
        self.assertIn(text, output)
        self.assertEqual(code, 1)

    def test_the_expected_failure_and_enough_tests_succeed(self):
        code, output = report(["PASS: a", "PASS: b", "PASS: c", "FAIL: known"])
        self.assertEqual(code, 0, output)

    def test_a_client_that_dies_after_some_checks_fails(self):
        self.check(["FAIL: known", "PASS: a", "PASS: b"], "client: 2 tests passed, at least 3 must; see ")

    def test_a_suite_without_a_minimum_fails(self):
        self.check(["PASS: a"], "client: expected.txt has no number of tests that must pass; 1 did", "# nothing\n")

    def test_an_unexpected_failure_fails(self):
        self.check(["PASS: a", "PASS: b", "PASS: c", "FAIL: known", "FAIL: d"], "not expected to: d")

    def test_a_client_without_output_fails(self):
        self.check([], "client: no result")


unittest.main()
