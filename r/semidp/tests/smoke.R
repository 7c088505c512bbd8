# Every function once, with checks that stop on a wrong answer.
library(semidp)

people <- data.frame(
  id = sprintf("%03d", 1:600),
  sex = factor(rep(c("f", "m"), 300)),
  region = rep(c("007", "008", "it's, \"west\""), 200),
  health = factor(rep(c("good", "good", "good", "poor", "good"), 120), levels = c("good", "poor", "unknown")),
  age = rep(20:79, 10)
)
out <- tempfile("release")
release <- sd_release(people, table = c("sex", "region", "health"), exact = list("sex", "region"),
                      mean = "age", group = "sex", bounds = list(age = c(0, 100)), mu = 2, out = out)
table <- release$tables$table
stopifnot(
  release$private, release$a == 3, nrow(table) == 18,
  setequal(table$region, people$region), is.character(table$region),
  "unknown" %in% table$health,
  all(table$estimate_low <= table$estimate_high),
  aggregate(count ~ sex, table, sum)$count == c(300, 300),
  nrow(release$tables[["mean-age"]]) == 2
)
intervals <- sd_intervals(release)
# A count is not negative, so the interval of a negative estimate begins at 0.
stopifnot(nrow(intervals) == 18, all(intervals$low <= pmax(intervals$estimate, 0)), all(intervals$estimate <= intervals$high))
rate <- sd_intervals(release, of = "health=poor", among = "region=007")
stopifnot(rate$low <= rate$estimate, rate$estimate <= rate$high)
tested <- sd_test(release, rows = "region", columns = "health")
stopifnot(tested$p_value > 0, tested$p_value <= 1)
stopifnot(identical(sd_read(out)$tables, release$tables))

fails <- function(expression) tryCatch({ expression; "" }, error = conditionMessage)
stopifnot(
  grepl("no column|not a column|has no", fails(sd_release(people, table = c("sex", "nothing"), mu = 1, out = tempfile()))),
  grepl("not a folder", fails(sd_read(tempfile()))),
  grepl("name every argument", fails(sd_release(people, "sex", out = tempfile()))),
  grepl("out = ", fails(sd_release(people, table = "sex", mu = 1)))
)
cat("All checks passed\n")
