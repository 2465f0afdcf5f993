"""Attacks on region certificates: random problems, and a search for anything below a bound."""
