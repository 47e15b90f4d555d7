"""Operations that wait for a condition or a timeout, watched by the keys that may fulfil it."""
