class Report:
    def __init__(self, measures, about, seconds):
        self.m = measures; self.seconds=seconds
    def write(self, out): pass
    def markdown(self): return str(self.seconds)
