"""``python -m sfumato``, the form that ``torchrun -m`` needs."""

from sfumato.cli import main

if __name__ == "__main__":
    main()
