"""Lines of an annotations file: a document with two fields and a category that two people judged, and another one."""

LINES = (
    {
        "id": "d1",
        "title": "On cod",
        "body": "Cod is a fish.",
        "type": ["a", "b"],
        "labels": ["fish"],
        "model": {"name": "sea", "version": "3"},
        "by": "ann",
        "at": "2026-01-01T00:00:00+00:00",
        "suggested": [
            {
                "label": "fish",
                "name": "Fish",
                "score": 0.9,
                "predicted": True,
                "words": [],
            },
            {
                "label": "law & order",
                "name": "Law",
                "score": 0.1,
                "predicted": False,
                "words": [],
            },
        ],
        "seconds": 4.5,
    },
    {
        "id": "d1~2",
        "document": "d1",
        "title": "On cod",
        "body": "Cod is a fish.",
        "type": [],
        "labels": [],
        "by": "bo",
    },
    {"id": "d2", "text": "Steel.", "labels": ["steel", "law & order"], "by": None},
)
