"""TextWorld: games (knobs and a seed -> a compiled game), packs (many games in one file), env (playing one)."""
