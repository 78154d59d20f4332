"""Planting: what a head starts from, computed from the training documents before stage 2 trains it.

A randomly started head learns rare labels last. Planting gives every label, rare or common, what the documents say of
it already. A `PlantingPlan`, resolved once from the configuration, says which parts are planted and who chooses.

In order, what is planted, and from what:

1. `mig`: the ranking of each label's tokens, by mutual information gain. It counts in how many training documents a
   token and a label occur together, and needs no model.
2. `projections`: attention and values, in closed form, from sums over one pass of hidden states through train. Values
   are the directions that predict labels best; attention is the keys and queries that find a label's ranked tokens.
3. Dev chooses: the head is planted with attention and values, with one of them, and with neither, each time with rows
   from a sample of train; whichever has the best macro-F1 on dev, before training, is planted (`Planter`).
4. `ranking_objective`: instead of the closed form, the paper's stage 1 can train the attention to rank tokens.
5. `prototypes`, or `ridge_rows` for heads that read one vector per document: the classifier rows, from a second pass,
   because they depend on the planted attention. They come last, and biases with them.

`Planter` takes these steps; `xmtc.stages.plant` gives it a worker's documents and writes the planted head.
"""
