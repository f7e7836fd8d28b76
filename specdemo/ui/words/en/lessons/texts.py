"""The eight lessons in English. *A term* stands between stars at its first use, `code` between backticks.

Numbers of this machine never stand here: the page reads them off the recorded runs. Others name their paper.
"""

from __future__ import annotations

LESSONS: dict[str, object] = {
    "slow": {
        "title": "Why decoding is slow",
        "aim": "See why a model writes one token at a time, and what it waits for.",
        "text": [
            "A language model writes text in *tokens*: words or pieces of words. To get the next one, the whole model runs once, from its first layer to its last. That is one *pass*. The token goes back in, and the next pass begins. No pass can begin before the previous one has ended, because it needs that pass's token as its input. This is *decoding*; without any help it is called *plain decoding*.",
            "In each pass, every *weight* of the model is fetched from memory, and 4-bit weights are unpacked too. Most of that work is the same however many tokens the pass is about. A pass over several tokens at once, several *rows*, does it once for all of them: it costs more than a pass over one row, but far less than as many passes.",
            "Reading your prompt uses this: all of its tokens are known, so they are read many rows at a time. "
            "While writing, the next tokens are not known. Not yet.",
        ],
        "runs": {
            "05-plain": {
                "title": "Plain decoding",
                "look": "Plain decoding, twice: there are no drafts, so each step of the strip is one token and "
                "the speedup stays near 1.",
            }
        },
        "questions": {
            "passes": {
                "ask": "How many passes of the model does an answer take in plain decoding?",
                "options": {
                    "one": "One, for the whole answer",
                    "half": "One for every few tokens",
                    "each": "One for each token",
                },
                "evidence": "The answer has {tokens} tokens and took {passes} passes of {milliseconds} ms each.",
            },
            "rows": {
                "ask": "One pass judges eight tokens at once. How long does it take, measured in passes over one "
                "token?",
                "value": "{value} times one pass",
                "evidence": "When the model was loaded, a pass over one row took {one} ms and a pass over eight "
                "rows {eight} ms: {ratio} times as long for eight times as many tokens.",
                "bar": "a pass over {rows}: {milliseconds} ms",
            },
        },
        "live": "Run the same question with plain decoding on your machine. Then choose the method Draft model, "
        "run again, and compare tokens per second.",
        "takeaway": "One token per pass makes decoding slow; a pass over several tokens costs far less than several passes. If the next tokens could be guessed, they could be checked together.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding",
            "2302.01318 Chen et al., Accelerating Large Language Model Decoding with Speculative Sampling",
        ],
    },
    "check": {
        "title": "Draft and verify",
        "aim": "Follow one step: a guess, a check, and what becomes of each guessed token.",
        "text": [
            "A *drafter* guesses the next few tokens. Here it is one small layer that has learned what this model says next, so that a guess costs little. The big model is the *target*. It reads the whole *draft* in one pass and says, at each position, which token it would have written itself.",
            "With *greedy* decoding, which always takes the most likely token, a drafted token is *accepted* when the target would have written the same. At the first one that differs it is *rejected*, and the target's own token takes its place: the *correction*. What was drafted after it is *unreached*. When the whole draft is kept, the same pass gives one more token: the *bonus*.",
            "So each *step* (one draft, one check) gives at least one token, and each token is one that the "
            "target would have written. This is *speculative decoding*.",
        ],
        "runs": {
            "20-larger-model": {
                "title": "A small drafter",
                "look": "Step through it with the buttons below the text, or click into the text and use the arrow "
                "keys. Struck through: rejected. The token beside it: the correction.",
            }
        },
        "questions": {
            "kept": {
                "ask": "Of 100 tokens that the drafter guesses here, how many does the target keep?",
                "value": "{value} of 100",
                "evidence": "{accepted} of {drafted} drafted tokens were kept. Those after a rejected one count as drafted too.",
            },
            "behind": {
                "ask": "A drafted token is rejected. What happens to the drafted tokens after it?",
                "options": {
                    "kept": "Those that are right are kept",
                    "tested": "They are tested against the correction",
                    "dropped": "They are dropped without a test",
                },
                "evidence": "{dropped} of the {drafted} drafted tokens were dropped like that: they continued a "
                "text that no longer exists.",
            },
            "per_step": {
                "ask": "How many tokens does one step give on average, the target's own included?",
                "value": "{value} tokens per step",
                "evidence": "{tokens} tokens in {steps} steps, so {steps} passes of the target instead of {tokens}. A step also drafts, and its pass has more rows: the speedup is {speedup}×.",
            },
        },
        "live": "Run the same prompt here, then one of your own. Which words are guessed right most of the time, "
        "and which are not?",
        "takeaway": "A small model guesses, the target checks all guesses in one pass, and each step gives at "
        "least one token.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding",
            "2302.01318 Chen et al., Accelerating Large Language Model Decoding with Speculative Sampling",
        ],
    },
    "exact": {
        "title": "Why nothing changes",
        "aim": "Work the rejection rule by hand, and see why even a bad draft cannot change the text.",
        "text": [
            "With *sampling*, the next token is drawn at random, each with the probability that the target gives "
            "it. The *temperature* flattens these probabilities (above 1) or sharpens them (below 1). Papers "
            "write p for the target's *distribution* and q for the draft's.",
            "The *rejection rule*: a drafted token x is kept with probability min(1, p(x) / q(x)). The draft may have liked it too much; then it is kept only that often. When it is rejected, the token in its place is drawn from what the draft liked too little: max(0, p - q), scaled to a sum of 1. This is the *residual*.",
            "A word can come out in two ways. Drafted and kept: min(p, q). Rejected, then drawn from the "
            "residual: exactly the rest, p - min(p, q). Together they are p, whatever q is. This is what "
            "*lossless* means: the same probability for every text, not the same draw.",
            "Don't take our word for it: `python -m specdemo audit` tests every method on the model that is loaded, and the Methods tab shows the last result. In low precision a pass over several rows rounds differently from a pass over one, so with greedy decoding a near-tie can go the other way; the audit reports how often.",
        ],
        "runs": {
            "03-story-sampled": {
                "title": "Sampling at temperature 1",
                "look": "Point at a drafted token: its probabilities under target and draft, the probability that it is kept, and the draw that decided.",
            }
        },
        "questions": {
            "accept": {
                "ask": "The target gives blue 0.5, clear 0.3 and grey 0.2. The draft gives blue 0.2, clear 0.6 and "
                "grey 0.2, and draws clear. With what probability is clear kept?",
                "value": "{value}",
                "evidence": "min(1, {target} / {draft}) = {accept}. When clear is rejected, blue takes its place with probability {first}: it is the only word that the draft liked too little.",
            },
            "seed": {
                "ask": "The same prompt, the same seed, temperature 1: with drafts, does the model write the same "
                "words as without?",
                "options": {
                    "same": "Yes, the same words",
                    "other": "No, other words that were just as likely",
                    "worse": "No, worse words",
                },
                "evidence": "Here the two texts differ after {agree} tokens. Both are draws from the same distribution, and drafts use up random numbers that plain decoding does not.",
            },
            "share": {
                "ask": "Of 100 drafted tokens that the target really tested here, how many are kept?",
                "value": "{value} of 100",
                "evidence": "{kept} of {tested} tested tokens were kept. Their acceptance probabilities add up to {expected} of 100: the draws did about what the rule promised.",
            },
        },
        "live": "Run the story twice with the same seed, and twice with two seeds. Then set the temperature to 0 "
        "and see how many more drafts are kept.",
        "takeaway": "Keep with min(1, p / q), replace from the residual: the sum is p for every draft. A bad draft "
        "costs time and nothing else.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding",
            "2302.01318 Chen et al., Accelerating Large Language Model Decoding with Speculative Sampling",
            "docs/lossless.md",
        ],
    },
    "ahead": {
        "title": "How far to look ahead",
        "aim": "Decide how many tokens to draft, and let the run decide again in every step.",
        "text": [
            "The *lookahead* says how many tokens are drafted in a step. The chance that a drafted token is kept "
            "is its *acceptance rate*, a. The second token counts only if the first was kept, the third only if "
            "both were. If each had the same chance, a step with g drafted tokens would give "
            "(1 - a^(g+1)) / (1 - a) tokens on average. Each further one adds less, and costs as much.",
            "Some positions are easy (the end of a phrase), others are hard (a name, a new idea). *Dynamic speculation* decides while drafting. Two of its policies: draft two more after a draft kept whole and one fewer otherwise (*heuristic*); stop after a token that the draft itself finds unlikely (*confidence*, 2405.04304). A classifier trained on recorded runs can decide too (*learned*, 2405.19715).",
            "The *cost-aware* policy of this program asks whether the next token pays: its chance to be kept "
            "against the time of one more draft step and one more row in the target's pass. Costs are measured "
            "on your machine, chances are learned from the run itself. The reason stands beside each step of the "
            "lookahead chart.",
            "A policy may stop after an unlikely token. It must not take a drawn token back: that changes the text. The method Look back does it wrong on purpose, so that you can see it.",
        ],
        "runs": {
            "07-constant-three": {
                "title": "Always three",
                "look": "In the lookahead chart each bar is a step: accepted and not accepted. The mark is the best possible lookahead, in hindsight.",
            },
            "01-guess-and-check": {
                "title": "Cost-aware, at most eight",
                "look": "Point at a bar of the lookahead chart: it says why drafting stopped there.",
            },
            "06-too-far": {
                "title": "Always sixteen",
                "look": "Sixteen tokens in each step, wanted or not.",
            },
        },
        "questions": {
            "whole": {
                "ask": "Always three ahead: in how many of 100 steps are all three kept?",
                "value": "{value} of 100",
                "evidence": "In {whole} of {steps} steps all were kept, and drafting further might have paid. In {none} steps none was, and all three were wasted. No constant suits both.",
            },
            "chosen": {
                "ask": "The cost-aware policy may draft up to eight tokens. How many does it draft on average?",
                "value": "{value} tokens",
                "evidence": "Between {least} and {most}, step by step. One of its reasons: {reason}.",
            },
            "waste": {
                "ask": "A poem with unusual words at temperature 1, always sixteen ahead. How many of the sixteen "
                "are kept in an average step?",
                "value": "{value} of 16",
                "evidence": "{kept} kept of {drafted} drafted in a step, over {steps} steps. The rest was "
                "computed twice, by draft and target, and thrown away.",
            },
        },
        "live": "Run the same list with the cost-aware policy, then with a constant lookahead of 3, then of 12. "
        "Compare the lookahead charts, and the seconds.",
        "takeaway": "How far to draft depends on the position, the draft and the machine. Published gains of dynamic policies over the best constant are 7 to 11 %: the best constant is the honest rival.",
        "papers": [
            "2405.04304 DISCO, Dynamic Speculation Lookahead Accelerates Speculative Decoding",
            "2405.19715 SpecDec++, Boosting Speculative Decoding via Adaptive Candidate Lengths",
        ],
    },
    "slower": {
        "title": "When it is slower",
        "aim": "Make speculative decoding lose on purpose, and say why with two numbers.",
        "text": [
            "A step costs more than a plain pass: g draft steps, and a pass with g + 1 rows instead of one. Count both in plain passes. Let c be the cost of a draft step and v that of the wider pass; a step then costs g × c + v. The *speedup* is the number of tokens that a step gives, divided by its cost. When it gives less than it costs, drafting is slower than not drafting.",
            "Three things cause this. A hard text: unusual words are hard to guess. A high temperature: target and draft both spread out and agree less; on average a drafted token is kept with the sum over all words of min(p, q). And a lookahead that is too long: tokens that are hardly ever reached cost their full price.",
            "A *fallback* guards against this: while measured times say that drafting is slower, it pauses, and it tries again now and then. The recorded run here was made without it.",
        ],
        "runs": {
            "06-too-far": {
                "title": "A poem, temperature 1, always sixteen",
                "look": "Red marks are wasted drafts. The line at 1 in the speedup chart is plain decoding.",
            }
        },
        "questions": {
            "faster": {
                "ask": "A surreal poem, temperature 1, sixteen tokens drafted in each step: faster or slower than "
                "plain decoding?",
                "options": {
                    "faster": "Faster",
                    "same": "About the same",
                    "slower": "Slower",
                },
                "evidence": "{fast} tokens/s with drafts, {plain} without: {speedup}×.",
            },
            "price": {
                "ask": "What does one step with sixteen drafted tokens cost, in plain passes?",
                "value": "{value} plain passes",
                "evidence": "A step takes {step} ms, of which {draft} ms is drafting; a plain pass takes {pass} "
                "ms. It gives {gives} tokens for the price of {price}: {gives} / {price} is the speedup of "
                "{speedup}×.",
            },
        },
        "live": "Run the same poem with the cost-aware policy and the fallback. How short do drafts become, and does drafting pause?",
        "takeaway": "Speedup is tokens per step divided by the cost of a step. A share of accepted drafts alone says little: look at both, and at seconds.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding (the cost of a step)"
        ],
    },
    "other": {
        "title": "Drafts without a second model",
        "aim": "Meet four other sources of guesses: the text itself, and the inside of the target.",
        "text": [
            "*N-gram* drafting, also called prompt lookup, needs no model: it looks up where the last few tokens occurred before and copies what followed. It costs next to nothing, and it is right when an answer repeats its prompt: edits, summaries, code. *Retrieval* (REST, 2311.08252) does the same with a collection of other texts.",
            "*Early exit* (LayerSkip, 2404.16710) drafts with the target's own first layers and a small trained adapter. *Medusa* (2401.10774) hangs extra heads on the target's last *hidden state*, the row of numbers from which the target picks its token: each head guesses one position further ahead.",
            "A *feature drafter* (the EAGLE family, 2401.15077 and 2503.01840) also reads the target's hidden "
            "states: they hold what the target was about to say. In this program it is one layer on top of the "
            "draft model, so it does keep a small second model.",
            "What these give depends on the target. On one with many layers, early exit after a few is cheap; "
            "on the small one recorded here, each layer is a large share of a pass. The papers report speedups of "
            "2 to 6 on far larger targets and on GPUs.",
        ],
        "runs": {
            "02-copy-and-edit": {
                "title": "N-gram",
                "look": "The answer repeats the prompt: long runs are copied, and a changed word ends the copy.",
            },
            "08-early-exit": {
                "title": "Early exit",
                "look": "Look at the milliseconds of drafting per step, and compare them with the other runs.",
            },
            "09-medusa": {
                "title": "Medusa",
                "look": "The heads do not know what the others chose: their guesses are combined into a tree.",
            },
            "10-feature": {
                "title": "Feature drafter",
                "look": "A chain again, from a drafter that sees what the target knew one token earlier.",
            },
        },
        "questions": {
            "copied": {
                "ask": "The model copies a text and changes one word in it. With n-gram drafts, how many tokens "
                "does a step give on average?",
                "value": "{value} tokens per step",
                "evidence": "The longest copy that was kept has {longest} tokens. Drafting took {draft} ms per step, and the speedup is {speedup}×.",
            },
            "cheapest": {
                "ask": "Which of the four spends the least time on one drafted token?",
                "options": {
                    "02-copy-and-edit": "N-gram",
                    "08-early-exit": "Early exit",
                    "09-medusa": "Medusa",
                    "10-feature": "Feature drafter",
                },
                "evidence": "Cheap does not mean good: look at what was kept, and the speedup. The prompts differ, so compare with care.",
                "bar": "{option}: {milliseconds} ms per drafted token, {accepted} % kept, {speedup}×",
            },
            "exit": {
                "ask": "Early exit drafts with the first layers of this small target. Is that faster than plain "
                "decoding here?",
                "options": {
                    "faster": "Faster",
                    "same": "About the same",
                    "slower": "Slower",
                },
                "evidence": "{speedup}×: one drafted token costs {share} % of a plain pass, and {accepted} % of "
                "them were kept.",
            },
        },
        "live": "Run the cat text with n-gram drafts, then ask for a poem with them. Where does copying stop "
        "helping?",
        "takeaway": "Guesses can come from the text, from a collection of texts, or from inside the target. What counts is what a guess costs and how often it is kept, on this target and this text.",
        "papers": [
            "2311.08252 REST, Retrieval-Based Speculative Decoding",
            "2404.16710 LayerSkip, Enabling Early Exit Inference and Self-Speculative Decoding",
            "2309.08168 Draft & Verify, Lossless Large Language Model Acceleration via Self-Speculative Decoding",
            "2401.10774 Medusa, Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
            "2401.15077 EAGLE, Speculative Sampling Requires Rethinking Feature Uncertainty",
            "2503.01840 EAGLE-3, Scaling up Inference Acceleration via Training-Time Test",
        ],
    },
    "trees": {
        "title": "Trees",
        "aim": "Check several continuations in one pass, and see what the second choice is worth.",
        "text": [
            "A chain ends at its first rejected token. A *tree* drafts several continuations: where the draft wavers between two words, it follows both. The target judges all *branches* in the same pass. An *ancestor mask* lets each drafted token see the text and, of the draft, only its own ancestors: every branch is judged as if it stood alone (SpecInfer, 2305.09781).",
            "At each position the drafted siblings are tested in turn; when all are rejected, the target's own token takes their place. With sampling, each rejection changes what is left for the next sibling, and the sum is still p.",
            "Each node costs a row. So a tree grows *best first*: the next node goes where the chance of another "
            "kept token is best (EAGLE-2, 2406.16858; Sequoia, 2402.12374). At most one branch can be kept; the "
            "others are the price.",
        ],
        "runs": {
            "04-tree": {
                "title": "Draft model, tree",
                "look": "Beside the text is the tree of a step: the kept path is thick, rejected nodes are struck out, untested ones are dotted.",
            },
            "11-feature-tree": {
                "title": "Feature drafter, tree",
                "look": "The same with a drafter that reads the target's hidden states.",
            },
        },
        "questions": {
            "share": {
                "ask": "The prompt is that of lesson 2, now with a tree instead of a chain. Is a larger or a smaller share of the drafted tokens kept?",
                "options": {
                    "larger": "A larger share",
                    "same": "About the same share",
                    "smaller": "A smaller share",
                },
                "evidence": "{tree} % of the tree's tokens were kept, {chain} % of the chain's. At most one branch "
                "can be kept, but the policy adds a branch only where it expects it to pay.",
            },
            "per_step": {
                "ask": "The chain of lesson 2 and this tree answer the same prompt. How many tokens does a step with "
                "the tree give?",
                "value": "{value} tokens per step",
                "evidence": "The chain gave {chain}. In seconds, the tree reached {tree_x}× and the chain {chain_x}×: more tokens per step, at more rows per pass.",
            },
            "rescued": {
                "ask": "In how many of 100 steps is a kept token not the first choice at its position, so that a chain would have ended there?",
                "value": "{value} of 100",
                "evidence": "{rescued} of {steps} steps kept a token whose sibling had been rejected before it.",
            },
        },
        "live": "Run the same prompt with a tree of 4 nodes, then of 24 (Tree nodes, under the method). Which is "
        "faster on your machine?",
        "takeaway": "A tree trades rows for tokens: several branches are paid for, and at most one is kept. It pays "
        "where rows are cheap and the second choice is often right.",
        "papers": [
            "2305.09781 SpecInfer, Tree-based Speculative Inference and Verification",
            "2406.16858 EAGLE-2, Faster Inference of Language Models with Dynamic Draft Trees",
            "2402.12374 Sequoia, Scalable, Robust, and Hardware-aware Speculative Decoding",
        ],
    },
    "latest": {
        "title": "The methods of 2026",
        "aim": "See four recent ideas at work, and what is left of them on a small model and a few cores.",
        "text": [
            "*DSpark* (DeepSeek-AI and Peking University, 2026) guesses a whole *block* in one pass of the drafter, then corrects each position by the token before it: “of course” or “no problem”, but not “of problem”. A *confidence head* says how likely each guess is to be kept, and a *scheduler* adds positions only while that raises tokens per second. It stops at the first position that does not, and never looks past it: that would change the text.",
            "*JetSpec* (2606.18394) also guesses a block in one pass, each position seeing those before it, and grows a tree from it. At each node the target draws its own token, and the walk goes on where a branch carries it: exact for any draft.",
            "*Parallel drafting* (PEARL, 2408.11850; SSD, 2603.03251) drafts while the target is busy: it guesses how the check will end and prepares the next draft. A right guess is a *hit*, and its drafting time is hidden. It needs a spare core.",
            "*Online* drafting (OSD, 2310.07177) learns from the target's verdicts while you use it: in the run "
            "by counting, between runs by small steps of training. Nothing of one visitor reaches another.",
        ],
        "runs": {
            "12-dspark": {
                "title": "DSpark",
                "look": "The lookahead chart shows how many positions of the block the scheduler admits.",
            },
            "13-jetspec": {
                "title": "JetSpec",
                "look": "The same prompt as DSpark's: a tree from one pass of the drafter.",
            },
            "14-parallel": {
                "title": "Parallel",
                "look": "Two more numbers: how often a prepared draft was used, and the drafting time that was "
                "hidden. The dashed line is the modelled bound.",
            },
            "15-online": {
                "title": "Online",
                "look": "Compare the strip's beginning with its end.",
            },
        },
        "questions": {
            "admitted": {
                "ask": "A block of DSpark has five positions. How many does the scheduler let the target check, on average?",
                "value": "{value} positions",
                "evidence": "Between {least} and {most}. {accepted} % of what it admitted was kept.",
            },
            "wider": {
                "ask": "The same prompt and block size: which of the two gives more tokens per step?",
                "options": {"13-jetspec": "JetSpec, the tree", "12-dspark": "DSpark, the chain"},
                "evidence": "JetSpec gave {jet} tokens per step with {jet_nodes} drafted, DSpark {spark} with {spark_nodes}.",
            },
            "ahead": {
                "ask": "Drafting while the target is busy, on cores that the target wants for itself: how does it "
                "compare with plain decoding?",
                "options": {
                    "faster": "Faster",
                    "same": "About the same",
                    "slower": "Slower",
                },
                "evidence": "{speedup}×. Of {known} drafts, {hits} had been prepared, which hid {saved} ms of drafting in all; the time that draft and target take from each other is not included.",
            },
            "learned": {
                "ask": "Online drafting counts while it runs. In the second half of this run, is a larger or a "
                "smaller share of drafts kept than in the first?",
                "options": {"more": "A larger share", "fewer": "A smaller share"},
                "evidence": "{early} % in the first half of the steps, {late} % in the second. One short story is "
                "little to learn from, and its end may be harder than its beginning.",
            },
        },
        "live": "Run the e-mail with DSpark, JetSpec and the draft model. Then choose Auto, which measures while "
        "it runs and takes what is fastest: a copy, the draft model or plain decoding.",
        "takeaway": "New methods cut what a draft costs or hide it, and decide what is worth checking. All of them still rely on the rule of lesson 3 and on measured costs.",
        "papers": [
            "DSpark (DeepSeek-AI and Peking University, 2026)",
            "2606.18394 JetSpec",
            "2408.11850 PEARL, Parallel Speculative Decoding with Adaptive Draft Length",
            "2603.03251 SSD, Speculative Speculative Decoding",
            "2310.07177 OSD, Online Speculative Decoding",
        ],
    },
}
