"""The lessons' moments in English: what a visitor counts, judges or compares for himself in each of them."""

from __future__ import annotations

_CUT = {
    "tokens": "a step gives {tokens} tokens",
    "cost": "and costs {cost} plain passes",
    "speedup": "tokens over cost: {speedup}×",
}

MOMENTS: dict[str, object] = {
    "origins": {
        "recorded": "recorded",
        "measured": "measured here",
        "modelled": "modelled from a recorded run",
        "drawn": "drawn here, from recorded probabilities",
    },
    "slow": {
        "title": "Many passes or one",
        "intro": "Above: one pass for each token, as in plain decoding. Below: one pass that judges as many tokens at once. Choose how many, then let both run in the time they take.",
        "rows": "Tokens",
        "run": "Run both, slowed {slowed}×",
        "apart": "{rows} passes over one token: {milliseconds} ms, {done} done",
        "together": "one pass over {rows} tokens: {milliseconds} ms, {done} judged",
        "told": "For {rows} tokens, one pass is {ratio} times as fast as a pass for each.",
    },
    "check": {
        "title": "You are the target",
        "intro": "A real draft from the recorded run. Which is the first token that the target does not accept? Choose it, or say that the whole draft is right.",
        "draft": "The drafted tokens",
        "whole": "All are right",
        "next": "Another draft",
        "ask": "Step {step} of the run.",
        "right": "Right.",
        "wrong": "Not quite.",
        "rejected": "The target keeps {kept} of {count}, rejects “{drafted}” and writes “{own}” instead.",
        "kept": "The target keeps all {count} and adds “{own}”.",
        "score": "So far you judged {right} of {asked} like the target.",
    },
    "exact": {
        "title": "A thousand draws, with drafts and without",
        "intro": "A position of the recorded story at which the target rejected a drafted token. Draw its next token a thousand times from the target alone, and a thousand times by the rejection rule.",
        "table": "Probabilities of both models, and shares of the draws",
        "columns": ["token", "target p", "draft q", "drawn without drafts", "drawn with drafts"],
        "others": "all others",
        "draw": "Draw {count} times",
        "other": "Another position",
        "none": "Nothing drawn yet. The trace lists the likeliest tokens; all others count as one.",
        "told": "{total} draws each. {rejected} drafted tokens were rejected, and still both columns follow p: {plain} of the draws fall elsewhere without drafts, {drafted} with them. That is chance.",
    },
    "ahead": {
        "title": "The same run, drafted less far",
        "intro": "The recorded poem always drafted sixteen tokens. Shorten its drafts: what was kept and what was measured say what each step would have given and cost.",
        "limit": "Drafted tokens at most",
        **_CUT,
        "told": "{kept} of {drafted} drafted tokens are kept, {wasted} are wasted. Best for this run: {best}, with {speedup}×.",
    },
    "slower": {
        "title": "Where the milliseconds go",
        "intro": "Plain decoding above, drafts below, each with the time of one token.",
        "lane": "{method}: {whole} ms a token ({seconds} s for {tokens}): target {verify}, drafting {draft}, other {other}",
        "parts": {"verify": "target", "draft": "drafting", "other": "other"},
        "faster": "Plain decoding takes {ratio} times as long as decoding with drafts, on {machine}.",
        "slower": "With drafts, a token takes {ratio} times as long as without, on {machine}.",
        "own": "This is your last run on the Play tab.",
        "recorded": "This is the recorded poem. Run a prompt on the Play tab, with plain decoding for comparison, and come back: then your own run stands here.",
    },
    "other": {
        "title": "One text from every method",
        "intro": "Each recorded run at temperature 0 was written twice: by plain decoding and with drafts. Compare them all, token by token, in this browser.",
        "compare": "Compare {count} methods",
        "none": "Nothing compared yet.",
        "row": "{method}: {steps} steps for {tokens} tokens, {same} the same",
        "told": "{equal} of {count} methods wrote exactly what plain decoding wrote. Prompts and targets differ, so there are {texts} texts. The bars are steps: shorter is better.",
    },
    "trees": {
        "title": "The same tree, pruned",
        "intro": "The recorded trees grew best first. Take their last nodes away: what was kept and what was measured say what each step would have given and cost.",
        "limit": "Nodes at most",
        **_CUT,
        "told": "{kept} of {drafted} nodes are kept, {wasted} are wasted. Best for this run: {best}, with {speedup}×.",
    },
    "latest": {
        "title": "Does it learn?",
        "intro": "The run with online drafting in five parts, and how much of each part's drafts was kept.",
        "part": "steps {from} to {to}: {kept} of {drafted} kept, {percent} %",
        "rises": "The share of kept drafts rises, from {early} % to {late} %: by more than two standard errors ({bound} points).",
        "falls": "The share of kept drafts falls here, from {early} % to {late} %: by more than two standard errors ({bound} points).",
        "unclear": "The first part kept {early} % and the last {late} %. Two standard errors are {bound} points, so these drafts do not show that it learns.",
        "own": "This is your last run on the Play tab.",
        "recorded": "This is a recorded run, and a short one. Run a long prompt twice with the method Online on the Play tab and come back: then your own run stands here.",
    },
}
