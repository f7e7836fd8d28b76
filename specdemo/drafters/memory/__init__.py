"""What drafters remember: earlier texts, word pairs, an online head."""
