"""Do the stores keep the contract, and what is theirs alone?"""

from __future__ import annotations
