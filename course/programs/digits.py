"""A wide network learns handwritten digits: python digits.py"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from course import data
from labkit import pick, pick_device


class Digits(Dataset):
    def __init__(self):
        self.images, self.labels = (each[:512] for each in data.digits())

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i] / self.images.max()
        if torch.rand(()) < 0.5:
            image = image.roll(1, 1)
        return image, self.labels[i]


device = pick_device()
WIDTH = pick(cpu=1024, test=16)
first = nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU())
model = nn.Sequential(first, nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
batches = DataLoader(Digits(), batch_size=64, shuffle=True)


def epoch():
    losses, right = [], 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        scores = model(x)
        loss = F.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        right += sum(map(torch.eq, scores.argmax(1), y))
    return float(sum(losses) / len(losses)), int(right) / len(batches.dataset)


if __name__ == "__main__":
    for number in range(1, 6):
        print("epoch {}: loss {:.2f}, {:.0%} right".format(number, *epoch()))
