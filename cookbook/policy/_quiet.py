"""Quiet: bitsandbytes, which peft imports, warns about kernels that nothing here uses. Imported before peft."""

import logging

logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
