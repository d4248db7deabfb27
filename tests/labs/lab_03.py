"""03, learning-rate schedules: what shows that the technique acts."""

from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook


def alive(names: dict[str, Any]) -> None:
    """The rates of the first six steps of 20, in percent of the highest one; the last is built in
    the exercise.
    """
    taken = {}
    for schedule in names["lab"].controls["schedule"][:-1]:
        rates: list[int] = []
        hook = register_optimizer_step_pre_hook(
            lambda optimizer, *_, rates=rates: rates.append(
                round(1000 * optimizer.param_groups[0]["lr"])
            )
        )
        try:
            settings = names["lab"].defaults | {"schedule": schedule, "max_lr": 0.1}
            step = names["make_workload"](**settings).step
            for _ in range(6):
                step()
        finally:
            hook.remove()
        taken[schedule] = rates
    assert taken == {
        "constant": [100] * 6,
        "linear": [100, 95, 90, 85, 80, 75],
        "cosine": [100, 99, 98, 95, 90, 85],
        "WSD": [10, 55, 100, 100, 100, 100],
        "rise": [10, 25, 40, 55, 70, 85],
        "1cycle": [4, 13, 37, 67, 91, 100],
    }
