local rows = 0 return { name = 'third', judge = function(self, row)
rows = rows + 1 if rows == 3 then error('third') end return true end }