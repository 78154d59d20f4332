"""At which ranks the metrics of rankings are taken: the k of P@k, R@k and so on."""

PRECISION_AT = (1, 3, 5, 8)
RECALL_AT = (5, 10)
NDCG_AT = (1, 3, 5)
PROPENSITY_AT = (1, 3, 5)
