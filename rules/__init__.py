"""The rule files of cleave: mathematics as egglog text, one file a family."""
