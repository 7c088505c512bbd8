"""How a release is shown: its `report`, its workbook, and the page of `explore`."""
