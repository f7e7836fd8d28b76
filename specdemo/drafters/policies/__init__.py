"""How far to draft: lookahead policies, and what is foreseen and learned for them."""
