"""Deeper 08, answers to the exercise: a step of AdamW in place."""

from course import exercises
from tests.labs import nothing


def right(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    w.mul_(1 - lr * weight_decay)
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    w.addcdiv_(m, (v / (1 - beta2**t)).sqrt().add_(eps), value=-lr / (1 - beta1**t))


def in_other_words(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    m.copy_(beta1 * m + (1 - beta1) * g)
    v.copy_(beta2 * v + (1 - beta2) * g**2)
    w.sub_(lr * weight_decay * w + lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)) ** 0.5 + eps))


def not_in_place(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    w = w * (1 - lr * weight_decay) - lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)


def adam_with_l2(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    right(w, g + weight_decay * w, m, v, t, lr, beta1, beta2, eps, 0)


def no_correction(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    w.mul_(1 - lr * weight_decay)
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    w.addcdiv_(m, v.sqrt().add_(eps), value=-lr)


def eps_in_the_root(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    w.mul_(1 - lr * weight_decay)
    m.lerp_(g, 1 - beta1)
    v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    w.addcdiv_(m, (v / (1 - beta2**t) + eps).sqrt(), value=-lr / (1 - beta1**t))


def decay_without_rate(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    right(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay / lr)


def counts_from_zero(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    right(w, g, m, v, t + 1, lr, beta1, beta2, eps, weight_decay)


def keeps_the_corrected(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay):
    right(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay)
    m.div_(1 - beta1**t)


CHECK = exercises.check_08_adamw
RIGHT = right
ALSO_RIGHT = [in_other_words]
WRONG = [
    (nothing, "w did not change"),
    (not_in_place, "w did not change"),
    (adam_with_l2, "step 1 is Adam with L2"),
    (no_correction, "after step 1 your weights differ from torch's"),
    (eps_in_the_root, "after step 1 your weights differ from torch's"),
    (decay_without_rate, "after step 1 your weights differ from torch's"),
    (counts_from_zero, "after step 1 your weights differ from torch's"),
    (keeps_the_corrected, "step 1 is right, but m is not what it must keep"),
]
