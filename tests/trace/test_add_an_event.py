"""An event added in a copy of the project by the three edits that docs/architecture.md names."""

import json
import shutil

import pytest
from programs import copy_project, python_in, run

DECLARED = '''
@part
class Rested:
    """A pause of the run."""

    lane: Lane
    seconds: Seconds
    why: Text = ""


Event = Rested | '''
EDITS = [
    ("specdemo/trace/events.py", "\nEvent = ", DECLARED),
    ("specdemo/trace/events.py", '    "failed": RunFailed,\n', '    "failed": RunFailed,\n    "rested": Rested,\n'),
    ("specdemo/engine/step.py", "    def verified(self", "    def rested(self):\n        return events.Rested(self.lane, 0.5)\n\n    def verified(self"),
    ("specdemo/engine/step.py", "from specdemo.trace.events import", "from specdemo.trace import events\nfrom specdemo.trace.events import"),
    ("assets/view/core/reducer.js", "  finished(state, item) {", "  rested(state, item) {\n    laneOf(state, item).elapsed += item.seconds;\n  },\n  finished(state, item) {"),
]  # fmt: skip
CODEC = """
from specdemo.engine.step import Step
from specdemo.trace.codec import TraceError, decode, encode

line = encode(Step("plain").rested())
assert decode(line) == Step("plain").rested()
for wrong in (line.replace("0.5", "-1"), line.replace("seconds", "hours"), line.replace("plain", "third")):
    try:
        decode(wrong)
    except TraceError:
        continue
    raise SystemExit(f"accepted: {wrong}")
print(line)
"""
FOLDED = """
import { checked } from "./assets/view/core/check.js";
import { fold } from "./assets/view/core/reducer.js";
console.log(fold([checked(JSON.parse(process.argv[1]))]).lanes.plain.elapsed);
"""


def test_an_event_needs_three_edits(tmp_path):
    assert len({path for path, _, _ in EDITS}) == 3
    project = copy_project(tmp_path / "project")
    for path, before, after in EDITS:
        text = (project / path).read_text(encoding="utf-8")
        assert text.count(before) == 1
        (project / path).write_text(text.replace(before, after), encoding="utf-8")
    line = python_in(project, "-c", CODEC).strip()
    assert json.loads(line) == {"type": "rested", "lane": "plain", "seconds": 0.5, "why": ""}
    python_in(project, "-m", "tools.docs")
    types = (project / "assets/view/types.d.ts").read_text(encoding="utf-8")
    assert "export interface Rested" in types
    rules = (project / "assets/view/core/rules.js").read_text(encoding="utf-8")
    assert '"rested": "Rested"' in rules
    table = (project / "docs/trace-format.md").read_text(encoding="utf-8")
    assert "| `rested` | A pause of the run. | `lane`, `seconds`, `why` |" in table
    if not shutil.which("node"):
        pytest.skip("needs node")
    assert run("node", "--input-type=module", "-e", FOLDED, line, cwd=project).strip() == "0.5"
