"""Expected calibration error over the first five places of dev, fifteen bins of equal width, in percent."""
import json, sys
for predictions in sys.argv[2:]:
    bins = [[0, 0.0, 0] for _ in range(15)]
    for document, answer in zip(open(sys.argv[1]), open(predictions)):
        gold = set(json.loads(document)["labels"])
        for label in json.loads(answer)["labels"]:
            bin = bins[min(14, int(15 * label["score"]))]
            bin[0] += 1; bin[1] += label["score"]; bin[2] += label["id"] in gold
    print(f"{100 * sum(abs(sure - right) for _, sure, right in bins) / sum(count for count, _, _ in bins):.2f}")
