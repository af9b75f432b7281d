"""From blocks to registers, block functions and their derivatives."""
