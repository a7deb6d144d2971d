"""Working examples, one handler of each kind: `payments` (external), `orders` (transactional), `search` (repeatable).

Beside them are the other people's systems they call, as files: `gateway` and `index`, both kept in a `book`.
"""
