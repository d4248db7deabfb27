"""A small network learns photographs: python train.py"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from course import data
from labkit import pick, pick_device


class Photos(Dataset):
    def __init__(self):
        self.images, self.labels = data.cifar10(size=pick(cpu=1024, test=64))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i] / self.images.max()
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, self.labels[i]


device = pick_device()
first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
second = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten())
model = nn.Sequential(first, second, nn.Linear(784, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
batches = DataLoader(Photos(), batch_size=32, shuffle=True)


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
