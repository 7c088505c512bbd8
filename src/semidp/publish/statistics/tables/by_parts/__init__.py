"""Tables that are released part by part, in three ways.

- *Separate*: each part is estimated and fitted by itself, under tables at the cut that are
  published first. So it is wherever that is possible, and the only way for tables that no machine
  holds.
- *Assembled*: parts are only measured. Their measurements are put together, the tables are fitted
  as in one piece, and each part holds its rows of them.
- *Linked*: members and units of linked files, assembled and made to agree.

What is told of each way:

========== ======================== ====================== ===================
way        what is published        steps, work of a part  computed again
========== ======================== ====================== ===================
separate   `separate_published`     `separate_steps`,      `separate_recheck`
                                    `separate_work`,
                                    `separate_fits`
assembled  `assembled_published`    `assembled_steps`      `assembled_recheck`
linked     `linked_parts_published` `linked_parts_steps`   `assembled_recheck`
========== ======================== ====================== ===================

`measured_first` has what the last two ways share. Shared by all: `part_measurement` (one part,
counted and measured once), `assembled_measurement` (the measurement of all parts as one vector),
`table_of_parts` (cells in the folders of parts), `stored_fits` (fits that are kept for a run that
is resumed), `parts_words` (what is said of all of it).
"""
