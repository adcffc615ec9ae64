#!/usr/bin/env python3
"""Counts the test cases of a `bazel test`, from the events that Bazel wrote with --build_event_json_file.

Prints the cases that were skipped or failed and, last, `N passed, N failed`; exits with 1 if any failed. A test that
crashed, was not built or did not run counts as one failed case, a test without a report of its own (a script) as one case.
"""

import argparse
import json
import sys
import xml.etree.ElementTree
from urllib.parse import unquote, urlparse


def read_events(path):
    """Returns the labels of all tests, and for each test that ran its final attempts, one for each shard and run."""
    tests, results = [], {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # Bazel was killed while it wrote
            event = json.loads(line)
            if "testSize" in event.get("configured", {}):
                tests.append(event["id"]["targetConfigured"]["label"])
            elif "testResult" in event:
                which = event["id"]["testResult"]
                # A later attempt of the same run takes the place of the earlier one.
                results.setdefault(which["label"], {})[which["run"], which["shard"]] = event["testResult"]
    return tests, results


def read_report(result):
    """Returns the cases (name, passed) of one attempt; for a case that was skipped, passed is None."""
    for output in result.get("testActionOutput", []):
        if output["name"] == "test.xml":
            report = xml.etree.ElementTree.parse(unquote(urlparse(output["uri"]).path))
            break
    else:
        return []
    cases = []
    for case in report.iter("testcase"):
        name = ".".join(filter(None, [case.get("classname"), case.get("name")]))
        if case.find("skipped") is not None or case.get("status") == "notrun":
            cases.append((name, None))
        else:
            cases.append((name, case.find("failure") is None and case.find("error") is None))
    return cases


def count(path):
    """Returns how many cases passed, and the names of those that failed and of those that were skipped."""
    passed, failed, skipped = 0, [], []
    tests, results = read_events(path)
    for label in tests:
        if label not in results:
            failed.append(f"{label} (not built, or not run)")
        for result in results.get(label, {}).values():
            try:
                cases = read_report(result)
            except (OSError, xml.etree.ElementTree.ParseError) as error:
                cases = [(f"report: {error}", False)]
            passed += sum(ok is True for _, ok in cases)
            skipped += [f"{label} {name}" for name, ok in cases if ok is None]
            bad = [f"{label} {name}" for name, ok in cases if ok is False]
            if result["status"] != "PASSED" and not bad:
                # Every case passed, and then the program failed, as it does for a leak.
                bad = [f"{label} ({result['status']})"]
            failed += bad
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", help="the file that Bazel wrote")
    parser.add_argument("--bazel_status", type=int, default=0, help="Bazel's exit status")
    parser.add_argument("--case", action="append", default=[], metavar="NAME=STATUS", help="one more case, passed if 0")
    options = parser.parse_args()

    passed, failed, skipped = count(options.events)
    if options.bazel_status != 0 and not failed:
        failed.append(f"bazel (exit status {options.bazel_status})")
    for case in options.case:
        name, status = case.rsplit("=", 1)
        if status == "0":
            passed += 1
        else:
            failed.append(name)
    for name in skipped:
        print("SKIPPED", name)
    for name in failed:
        print("FAILED", name)
    print(f"{passed} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
