"""Is the ledger what it was when it was written, and do the tables say what it says?"""

from services.registry.verification.head import load_key as load_key
from services.registry.verification.head import signed_head as signed_head
from services.registry.verification.walk import Kept as Kept
from services.registry.verification.walk import verify_ledger as verify_ledger
