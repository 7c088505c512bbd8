"""The noisy measurement files of the 2020 Census: estimates for any area, with standard errors.

`semidp census estimate` is the command. The format of the files is described in
`semidp.inference.census.noisy_files`, and nowhere else.
"""
