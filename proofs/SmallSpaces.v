(* Rule "small spaces". Small spaces: listing all datasets as lists of records decides a(t), and lists all
   differences of tables. The listings are programs that Coq runs. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach LiteralReading Tables FiniteSets.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

Section Listing.
Variables (R B W : finType) (published : R -> B -> W) (n : nat).
(* The records and the blocks as lists, and some record to fill in. *)
Variables (records : seq R) (blocks : seq B) (r0 : R).
Hypothesis all_records : forall r, r \in records.
Hypothesis all_blocks : forall b, b \in blocks.
Local Notation dataset := (dataset R n).
Implicit Types (X Y : dataset) (s : seq R) (y : R).

Definition dataset_of (s : seq R) : dataset := [ffun i : 'I_n => nth r0 s i].
Definition list_of (X : dataset) : seq R := [seq X i | i <- enum 'I_n].

Lemma list_ofK X : dataset_of (list_of X) = X.
Proof.
apply/ffunP=> i; rewrite ffunE (nth_map i) ?size_enum_ord //.
by rewrite nth_ord_enum.
Qed.

Lemma nth_list_of X (i : 'I_n) : nth r0 (list_of X) i = X i.
Proof. by rewrite -{2}(list_ofK X) ffunE. Qed.

Lemma list_of_dataset s : size s = n -> list_of (dataset_of s) = s.
Proof.
move=> e; apply: (@eq_from_nth _ r0); rewrite size_map size_enum_ord // => i hi.
by rewrite (nth_map (Ordinal hi)) ?size_enum_ord // ffunE nth_enum_ord.
Qed.

Lemma count_list (P : pred R) X : #|[set i | P (X i)]| = count P (list_of X).
Proof.
rewrite count_map -sum1_count big_enum_cond -sum1_card.
by apply: eq_bigl => i; rewrite !inE.
Qed.

(* The same exact totals, for lists. *)
Definition same_listed (s s' : seq R) := all (fun b =>
  perm_eq [seq published r b | r <- s] [seq published r b | r <- s']) blocks.

Lemma same_listedP X Y : same_totals published X Y = same_listed (list_of X) (list_of Y).
Proof.
have E Z b v : total published Z b v = count_mem v [seq published r b | r <- list_of Z].
  by rewrite /total (count_list (fun r => published r b == v)) [RHS]count_map.
apply/same_totalsP/allP => [h b _|h b v].
  by apply/allP=> v _ /=; rewrite -!E h.
by rewrite !E; have /seq.permP := h b (all_blocks b); apply.
Qed.

(* The number of records that differ, for lists. *)
Definition distance_listed (s s' : seq R) := count (fun z => z.1 != z.2) (zip s s').

Lemma distance_listedP X Y : distance X Y = distance_listed (list_of X) (list_of Y).
Proof.
rewrite /distance /changed /distance_listed /list_of.
have -> : zip [seq X i | i <- enum 'I_n] [seq Y i | i <- enum 'I_n] =
    [seq (X i, Y i) | i <- enum 'I_n] by elim: (enum 'I_n) => //= i s ->.
rewrite count_map -sum1_count big_enum_cond -sum1_card.
by apply: eq_bigl => i; rewrite !inE.
Qed.

(* All datasets with the totals of s0, and all records that occur in one of them. [left] holds, for
   every block, the values that are still to be given out. *)
Definition fits (left : seq (B * seq W)) r := all (fun z => published r z.1 \in z.2) left.
Definition give (left : seq (B * seq W)) r := [seq (z.1, rem (published r z.1) z.2) | z <- left].
Fixpoint fill (left : seq (B * seq W)) m : seq (seq R) :=
  if m is m'.+1 then flatten [seq [seq r :: s | s <- fill (give left r) m'] | r <- records & fits left r]
  else [:: [::]].
Definition conforming s0 := fill [seq (b, [seq published r b | r <- s0]) | b <- blocks] n.
Definition possible_listed s0 := let D := conforming s0 in
  [seq y <- records | has (fun s => y \in s) D].

Lemma fillP left m s : all (fun z => size z.2 == m) left -> (s \in fill left m) = (size s == m) &&
  all (fun z => perm_eq z.2 [seq published r z.1 | r <- s]) left.
Proof.
elim: m left s => [|m IH] left s sizes /=.
  case: s => [|r s] //=; rewrite inE; apply/esym; apply/allP=> z /(allP sizes).
  by rewrite size_eq0 => /eqP ->.
apply/flatten_mapP/andP.
  move=> [r]; rewrite mem_filter => /andP[/allP fit _] /mapP[s' + ->] /=.
  have sizes' : all (fun z => size z.2 == m) (give left r).
    apply/allP=> z' /mapP[z hz ->] /=; rewrite size_rem ?fit //.
    by have /eqP -> := allP sizes z hz.
  rewrite IH // => /andP[sm /allP h]; split=> //; apply/allP=> z hz.
  have := perm_to_rem (fit z hz) => /permPl ->; rewrite perm_cons.
  by have := h _ (map_f (fun z => (z.1, rem (published r z.1) z.2)) hz).
case: s => [|r s] [] //= sm /allP h; exists r.
  rewrite mem_filter all_records andbT; apply/allP=> z hz.
  by rewrite (perm_mem (h z hz)) mem_head.
apply/mapP; exists s => //; rewrite IH.
  rewrite -eqSS sm; apply/allP=> z' /mapP[z hz ->] /=; rewrite -(perm_cons (published r z.1)).
  apply: perm_trans (h z hz); rewrite perm_sym; apply: perm_to_rem.
  by rewrite (perm_mem (h z hz)) mem_head.
apply/allP=> z' /mapP[z hz ->] /=; rewrite size_rem.
  by have /eqP -> := allP sizes z hz.
by rewrite (perm_mem (h z hz)) mem_head.
Qed.

Lemma conforming_lists s0 s : size s0 = n ->
  (s \in conforming s0) = (size s == n) && same_listed s0 s.
Proof.
move=> e; rewrite fillP; first by congr andb; rewrite all_map.
by apply/allP=> z /mapP[b _ ->]; rewrite size_map e.
Qed.

Lemma conformingP s0 X : size s0 = n ->
  (list_of X \in conforming s0) = same_totals published (dataset_of s0) X.
Proof.
by move=> e; rewrite conforming_lists // size_map size_enum_ord eqxx same_listedP list_of_dataset.
Qed.

Lemma conforming_size s0 s : size s0 = n -> s \in conforming s0 -> size s = n.
Proof. by move=> e; rewrite conforming_lists // => /andP[/eqP]. Qed.

Lemma possible_listedP s0 y : size s0 = n ->
  (y \in possible_listed s0) = possible published (dataset_of s0) y.
Proof.
move=> e; rewrite mem_filter all_records andbT; apply/hasP/possibleP.
  move=> [s sD ys]; have sn := conforming_size e sD.
  have lt : index y s < n by rewrite -sn index_mem.
  exists (dataset_of s), (Ordinal lt); rewrite -conformingP // list_of_dataset //.
  by rewrite ffunE nth_index.
move=> [Y [j [h <-]]]; exists (list_of Y); first by rewrite conformingP.
by apply: map_f; rewrite mem_enum.
Qed.

(* Does k suffice? By listing. *)
Definition suffices_listed s0 k :=
  let D := conforming s0 in let P := possible_listed s0 in
  all (fun s => all (fun i => all (fun y =>
    has (fun s' => (nth r0 s' i == y) && (distance_listed s s' <= k)) D) P) (iota 0 n)) D.

(* LISTING DECIDES a(t). The program over all lists of records agrees with the definition. *)
Theorem listing_decides s0 k : size s0 = n ->
  suffices published (dataset_of s0) k = suffices_listed s0 k.
Proof.
move=> e; apply/sufficesP/allP.
  move=> h s sD; have sn := conforming_size e sD.
  apply/allP=> i; rewrite mem_iota add0n => /= hi; apply/allP=> y; rewrite possible_listedP // => hy.
  have hs : same_totals published (dataset_of s0) (dataset_of s).
    by rewrite -conformingP // list_of_dataset.
  have [Y [h1 h2 h3]] := h (dataset_of s) (Ordinal hi) y hs hy.
  apply/hasP; exists (list_of Y); first by rewrite conformingP // (same_totals_trans hs h1).
  rewrite (nth_list_of Y (Ordinal hi)) h2 eqxx /=.
  by rewrite -(list_of_dataset sn) -distance_listedP.
move=> h X p y hX hy; have XD : list_of X \in conforming s0 by rewrite conformingP.
have /allP/(_ (p : nat)) := h _ XD; rewrite mem_iota add0n ltn_ord => /(_ isT)/allP/(_ y).
rewrite possible_listedP // => /(_ hy)/hasP[s sD /andP[/eqP ep k1]].
have sn := conforming_size e sD.
have hs : same_totals published (dataset_of s0) (dataset_of s).
  by rewrite -conformingP // list_of_dataset.
exists (dataset_of s); split; first by apply: same_totals_trans hs; rewrite same_totals_sym.
  by rewrite ffunE.
by rewrite distance_listedP list_of_dataset.
Qed.

(* The same as a number. *)
Theorem listing_decides_number s0 k : size s0 = n -> suffices_listed s0 k.+1 ->
  ~~ suffices_listed s0 k -> semi_adjacency published (dataset_of s0) = k.+1.
Proof.
move=> e; rewrite -!listing_decides // -!semi_adjacencyP => h1 h2.
by apply/eqP; rewrite eqn_leq h1 ltnNge h2.
Qed.

(* LISTING REFUTES. One person i of one dataset s0 and one possible y are enough to refute that k records
   suffice: no listed dataset in which i is y is within distance k. *)
Theorem listing_refutes s0 k (i : nat) y : size s0 = n -> i < n -> y \in possible_listed s0 ->
  all (fun s => (nth r0 s i == y) ==> (k < distance_listed s0 s)) (conforming s0) ->
  k < semi_adjacency published (dataset_of s0).
Proof.
move=> e hi; rewrite possible_listedP // => hy /allP far; rewrite ltnNge semi_adjacencyP.
apply/negP=> /sufficesP/(_ _ (Ordinal hi) y (same_totals_refl _ _) hy)[Y [h1 h2 h3]].
have := far (list_of Y); rewrite conformingP // h1 => /(_ isT).
by rewrite (nth_list_of Y (Ordinal hi)) h2 eqxx -(list_of_dataset e) -distance_listedP ltnNge h3.
Qed.

(* The paper's literal reading, by listing. *)
Definition literal_listed s0 k :=
  let D := conforming s0 in let P := possible_listed s0 in
  all (fun i => all (fun x => all (fun y =>
    has (fun s => (nth r0 s i == x) && has (fun s' => (nth r0 s' i == y) &&
      (distance_listed s s' <= k)) D) D) P) P) (iota 0 n).

(* LISTING DECIDES THE LITERAL READING. *)
Theorem listing_decides_literal s0 k : size s0 = n ->
  literal_suffices published (dataset_of s0) k = literal_listed s0 k.
Proof.
move=> e; apply/forallP/allP => [h i|h p].
  rewrite mem_iota add0n => /= hi; apply/allP=> x; rewrite possible_listedP // => hx.
  apply/allP=> y; rewrite possible_listedP // => hy.
  have /forallP/(_ x)/forallP/(_ y) := h (Ordinal hi); rewrite hx hy /=.
  case/existsP=> X /existsP[Y /and5P[h1 h2 /eqP h3 /eqP h4 h5]].
  apply/hasP; exists (list_of X); first by rewrite conformingP.
  rewrite (nth_list_of X (Ordinal hi)) h3 eqxx /=; apply/hasP; exists (list_of Y).
    by rewrite conformingP.
  by rewrite (nth_list_of Y (Ordinal hi)) h4 eqxx -distance_listedP.
apply/forallP=> x; apply/forallP=> y; apply/implyP=> hx; apply/implyP=> hy.
have pn : (p : nat) \in iota 0 n by rewrite mem_iota add0n ltn_ord.
have /allP/(_ x) := h p pn; rewrite possible_listedP // => /(_ hx)/allP/(_ y); rewrite possible_listedP // => /(_ hy).
case/hasP=> s sD /andP[/eqP es /hasP[s' sD' /andP[/eqP es' k1]]].
have size_of u : u \in conforming s0 -> size u = n by apply: conforming_size.
apply/existsP; exists (dataset_of s); apply/existsP; exists (dataset_of s').
rewrite -!conformingP // !list_of_dataset ?size_of // sD sD' !ffunE es es' !eqxx /=.
by rewrite distance_listedP !list_of_dataset ?size_of.
Qed.

End Listing.
