# A thin layer over the command `semidp`: arguments become options, JSON becomes data frames.

# The command: option semidp.command, else SEMIDP_COMMAND, else what is on the PATH.
find_command <- function() {
  command <- getOption("semidp.command", Sys.getenv("SEMIDP_COMMAND", Sys.which("semidp")))
  if (!nzchar(command)) {
    stop("the command 'semidp' was not found: install the Python package, or set options(semidp.command = ...)",
         call. = FALSE)
  }
  command
}

# One value of an option as text. A vector is one value with commas: c("sex", "region") is sex,region.
format_value <- function(value) {
  if (is.numeric(value)) value <- format(value, digits = 15, trim = TRUE, scientific = FALSE)
  paste(value, collapse = ",")
}

# Options from named arguments: a list repeats the option, TRUE is a flag, NULL and FALSE are left out.
# Names of a list or vector become NAME=value, as in levels = list(health = c("good", "poor")).
list_options <- function(arguments) {
  if (length(arguments) && (is.null(names(arguments)) || any(!nzchar(names(arguments))))) {
    stop("name every argument after the data: sd_release(people, table = c(\"sex\", \"region\"), mu = 1)",
         call. = FALSE)
  }
  words <- character()
  for (name in names(arguments)) {
    option <- paste0("--", gsub("_", "-", name))
    value <- arguments[[name]]
    if (is.null(value) || identical(value, FALSE)) next
    if (identical(value, TRUE)) {
      words <- c(words, option)
      next
    }
    values <- if (is.list(value)) value else list(value)
    for (k in seq_along(values)) {
      text <- format_value(values[[k]])
      key <- names(values)[k]
      if (!is.null(key) && nzchar(key)) text <- paste0(key, "=", text)
      words <- c(words, option, text)
    }
  }
  words
}

# Run the command and return what it printed as JSON. What is wrong becomes an R error with its sentence.
run_command <- function(words) {
  complaints <- tempfile()
  on.exit(unlink(complaints))
  printed <- suppressWarnings(system2(
    find_command(), shQuote(c(words, "--format", "json", "--quiet")), stdout = TRUE, stderr = complaints
  ))
  status <- attr(printed, "status")
  said <- paste(readLines(complaints, warn = FALSE), collapse = "\n")
  if (!is.null(status) && status != 0) stop(sub("^semidp: ", "", said), call. = FALSE)
  if (nzchar(said)) warning(said, call. = FALSE)
  jsonlite::fromJSON(paste(printed, collapse = "\n"), simplifyVector = TRUE)
}

folder_of <- function(release) if (inherits(release, "semidp_release")) release$folder else release

# Publish data with noise and exact totals; see ?sd_release.
sd_release <- function(data, ..., out) {
  arguments <- list(...)
  if (is.data.frame(data)) {
    file <- tempfile(fileext = ".csv")
    on.exit(unlink(file))
    utils::write.csv(data, file, row.names = FALSE, na = "")
    # Levels of the factors that are asked for are declared, not read from the data. Exact ones are public.
    asked <- unlist(strsplit(as.character(unlist(arguments)), "[,=]"))
    given <- c(names(arguments$levels), names(arguments$bins), unlist(arguments$exact))
    declared <- lapply(Filter(is.factor, data), levels)
    declared <- declared[setdiff(intersect(names(declared), asked), given)]
    arguments$levels <- c(as.list(arguments$levels), declared)
    if (!length(arguments$levels)) arguments$levels <- NULL
    data <- file
  }
  if (missing(out)) stop("say where to write the release: out = \"release\"", call. = FALSE)
  run_command(c("release", data, list_options(arguments), "--out", out))
  sd_read(out)
}

# Read a release folder; see ?sd_read.
sd_read <- function(folder) {
  file <- file.path(folder, "release.json")
  if (!file.exists(file)) stop(folder, " is not a folder that semidp release wrote", call. = FALSE)
  document <- jsonlite::fromJSON(file, simplifyVector = FALSE)
  described <- jsonlite::fromJSON(file.path(folder, "csv-metadata.json"), simplifyVector = FALSE)
  tables <- list()
  for (table in described$tables) {
    columns <- table$tableSchema$columns
    # Labels stay text: 007 is not 7.
    classes <- vapply(columns, function(column) {
      switch(column$datatype, string = "character", integer = "numeric", number = "numeric", boolean = "logical", NA_character_)
    }, "")
    names(classes) <- vapply(columns, function(column) column$titles, "")
    name <- sub("\\.csv$", "", table$url)
    tables[[name]] <- utils::read.csv(file.path(folder, table$url), colClasses = classes,
                                      check.names = FALSE, encoding = "UTF-8")
  }
  structure(
    list(folder = folder, private = document$private, a = document$a$used, epsilon = document$epsilon,
         delta = document$report_delta, adjacency = document$a$kind, tables = tables, document = document),
    class = "semidp_release"
  )
}

# Intervals for what a release published; see ?sd_intervals.
sd_intervals <- function(release, ...) {
  found <- run_command(c("intervals", folder_of(release), list_options(list(...))))
  rows <- Find(is.data.frame, found[c("cells", "areas", "sums", "rows", "estimates")])
  if (!is.null(rows)) return(rows)
  as.data.frame(found[vapply(found, function(value) is.atomic(value) && length(value) == 1, NA)])
}

# Test whether two features are associated; see ?sd_test.
sd_test <- function(release, rows, columns, ...) {
  words <- list_options(list(rows = rows, columns = columns, ...))
  found <- run_command(c("test", folder_of(release), words))
  as.data.frame(found[vapply(found, function(value) is.atomic(value) && length(value) == 1, NA)])
}

print.semidp_release <- function(x, ...) {
  cat("semidp release in", x$folder, "\n")
  cat("private:", x$private, "\n")
  pairs <- if (identical(x$adjacency, "exchange")) "exchanges of one person" else paste("datasets that differ in up to", x$a, "records")
  cat("guarantee for ", pairs, ": (", format(x$epsilon, digits = 4), ", ", format(x$delta), ")-DP\n", sep = "")
  for (name in names(x$tables)) cat("  ", name, ": ", nrow(x$tables[[name]]), " rows\n", sep = "")
  invisible(x)
}
