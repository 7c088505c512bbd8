"""Figures: `figures` draws curves and tables, `style` is their common look."""
