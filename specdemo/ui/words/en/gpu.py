"""What a visitor of a ZeroGPU Space reads: why there is no GPU for a run, in the words of `cluster/zero.py`, and what `spaces` reports."""

from __future__ import annotations

UNHARMED = "Recorded runs, the lessons and the cost model need no GPU."
QUOTA = "This run asks for {requested} s of GPU time, and you have {left} s left."
QUOTA_ADVICE = "Ask for fewer tokens, or run again after {wait}. Who is signed in to Hugging Face has more GPU time."
RUNS = "You have begun as many runs on a GPU as you may for now."
RUNS_ADVICE = "Run again later. Who is signed in to Hugging Face has more GPU time."
LONG = "This run asks for {requested} s of GPU time, which is more than one run may have."
LONG_ADVICE = "Ask for fewer tokens and run again."
NOBODY = "Hugging Face does not know whose GPU time this run would use."
NOBODY_ADVICE = "Open the page on huggingface.co and sign in."
BUSY = "No GPU was free within a minute."
BUSY_ADVICE = "Run again in a while."
ABORTED = "The GPU was taken away before the run ended."
ABORTED_UNHARMED = "What was said so far is kept."
ABORTED_ADVICE = "Ask for fewer tokens and run again."
UNREACHED = "The GPU could not be had: {error}."

# As `spaces` says it while a run waits or takes longer than it asked for.
REPORTED = (
    "ZeroGPU queue",
    "Waiting for a GPU to become available",
    "Waiting for a GPU slot on this Space",
    "Successfully acquired a GPU",
    "ZeroGPU duration",
    "GPU task is exceeding its requested duration and might be aborted",
)
