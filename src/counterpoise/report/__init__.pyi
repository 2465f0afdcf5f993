from .fit.page import fit_page as fit_page
from .writing import write_page as write_page
from .writing import write_report as write_report
