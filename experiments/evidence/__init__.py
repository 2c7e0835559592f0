"""What the stored figures say: claims with verdicts, tables and drawings of the pages."""
