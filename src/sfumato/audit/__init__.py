"""The hallucination audit: is a restored image supported by its measurement, its samples and the model's training?

:func:`audit` runs every check that an image and a model file allow; :func:`write_audit` writes maps and a page.
"""

from sfumato.audit.report import write_audit
from sfumato.audit.run import Audit, Optics, audit

__all__ = ["Audit", "Optics", "audit", "write_audit"]
