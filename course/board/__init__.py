"""The speedrun board: what each technique does to the reader's own training, and what was kept.

from course.board import board

board("mixed_precision")
"""

from course.board.cell import Board, board
from course.board.rate import images_per_second

__all__ = ["Board", "board", "images_per_second"]
