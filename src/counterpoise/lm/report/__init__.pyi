from .comparison import study_page as study_page
from .run import run_page as run_page
from .writing import write_report as write_report
