(* Errata of the paper, from the general definitions: three-cycles are missing from its sensitivity space
   of r x c tables under A_3. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zmodp zify.
Require Import Datasets Tables ExchangeNormsAttained SmallSpaces.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.

(* ---- cycles of any length ---- *)

(* A k x k table: a record is its row and its column, and both margins are exact. *)
Definition row_and_column (k : nat) (r : 'I_k * 'I_k) (b : bool) : 'I_k := if b then r.1 else r.2.

(* CYCLES. For every k >= 2 the k records (i, i) -> (i, i + 1 mod k) keep both margins of a k x k table
   and move 2k cells, and no two datasets that differ in fewer than k records have the same difference of
   tables. For k = 3 this is the three-cycle that the paper's list lacks. *)
Theorem cycle_needs_k_records k' (k := k'.+2) :
  exists X Y : dataset [finType of 'I_k * 'I_k] k,
  [/\ same_totals (@row_and_column k : _ -> bool_finType -> _) X Y, distance X Y = k,
      l1 X Y = Posz (2 * k)
    & forall n (X' Y' : dataset [finType of 'I_k * 'I_k] n), distance X' Y' < k ->
        exists c, (table X c - table Y c != table X' c - table Y' c)%R].
Proof.
pose X : dataset [finType of 'I_k * 'I_k] k := [ffun i : 'I_k => (i, i)].
pose Y : dataset [finType of 'I_k * 'I_k] k := [ffun i : 'I_k => (i, (i + 1)%R)].
have apart i j : X i != Y j.
  rewrite !ffunE; apply/eqP=> -[-> /eqP]; rewrite -GRing.subr_eq0 GRing.opprD GRing.addrA.
  by rewrite GRing.subrr GRing.sub0r GRing.oppr_eq0 GRing.oner_eq0.
have l1E : l1 X Y = Posz (2 * k) by rewrite (l1_apart apart) card_ord.
exists X, Y; split=> //.
- apply: (@rearranged_totals _ _ _ _ _ _ _
    (fun b => if b then 1%g else perm (@GRing.addIr _ (1%R : 'I_k)))) => i b.
  by rewrite !ffunE; case: b; rewrite ?perm1 ?permE.
- rewrite /distance -[RHS]card_ord -cardsT; apply: eq_card => i; by rewrite !inE apart.
move=> n X' Y' lt; apply/existsP; apply: contraT; rewrite negb_exists => /forallP h.
have e : l1 X' Y' = l1 X Y by apply: eq_bigr => r _; have /negbNE/eqP -> := h r.
have : (l1 X' Y' <= Posz (2 * distance X' Y'))%R.
  by apply: l1_le => i; rewrite inE negbK => /eqP.
by rewrite e l1E lez_nat leq_mul2l /= leqNgt lt.
Qed.

(* ---- the sensitivity space by listing ---- *)

(* d is the difference of the tables of two datasets of cells, of any size, with the same totals, at most
   a records apart. *)
Definition is_difference (C K W : finType) (margin : C -> K -> W) a (d : C -> int) :=
  exists n (X Y : dataset C n), [/\ same_totals margin X Y, distance X Y <= a
    & forall c, d c = (table X c - table Y c)%R].

Section Differences.
Variables (C K W : finType) (margin : C -> K -> W) (cells : seq C) (margins : seq K) (c0 : C).
Hypothesis all_cells : forall c, c \in cells.
Hypothesis all_margins : forall k, k \in margins.

(* All lists of m elements of cs, each in one order only. *)
Fixpoint multisets (cs : seq C) m : seq (seq C) :=
  if cs is c :: cs' then
    flatten [seq [seq nseq j c ++ s | s <- multisets cs' (m - j)] | j <- iota 0 m.+1]
  else if m == 0 then [:: [::]] else [::].

Lemma multisets_cons c cs m : multisets (c :: cs) m =
  flatten [seq [seq nseq j c ++ s | s <- multisets cs (m - j)] | j <- iota 0 m.+1].
Proof. by []. Qed.

Lemma multisets_size cs m s : s \in multisets cs m -> size s = m.
Proof.
elim: cs m s => [|c cs IH] m s; first by rewrite /=; case: eqP => // ->; rewrite inE => /eqP ->.
rewrite multisets_cons => /flatten_mapP[j]; rewrite mem_iota add0n ltnS => /= jm /mapP[s' /IH e ->].
by rewrite size_cat size_nseq e subnKC.
Qed.

(* Every list is a rearrangement of a listed one. *)
Lemma multisets_complete cs m s : size s = m -> all (fun c => c \in cs) s ->
  exists2 s', s' \in multisets cs m & perm_eq s s'.
Proof.
elim: cs m s => [|c cs IH] m s sm.
  case: s sm => [|c s] /= <- //; by exists [::].
move=> /allP hs; pose j := count_mem c s; pose rest := [seq x <- s | x != c].
have split_s : perm_eq s (nseq j c ++ rest).
  have -> : nseq j c = [seq x <- s | pred1 c x].
    have /all_pred1P -> : all (pred1 c) [seq x <- s | pred1 c x] by apply: filter_all.
    by rewrite size_filter.
  by rewrite perm_sym perm_filterC.
have jm : j <= m by rewrite -sm count_size.
have [||s' hs' ps'] := IH (m - j) rest.
- by have := perm_size split_s; rewrite size_cat size_nseq sm => ->; rewrite addKn.
- apply/allP=> x; rewrite mem_filter => /andP[nx /hs]; by rewrite inE (negbTE nx).
exists (nseq j c ++ s'); last by rewrite (permPl split_s) perm_cat2l.
by rewrite multisets_cons; apply/flatten_mapP; exists j; [rewrite mem_iota add0n ltnS|apply/mapP; exists s'].
Qed.

(* The difference of the counts of two lists, cell by cell. *)
Definition difference_of (s s' : seq C) : seq int :=
  [seq (Posz (count_mem c s) - Posz (count_mem c s'))%R | c <- cells].

(* A list without repetitions. (The library's [undup] compares with what follows, which is long here.) *)
Definition distinct (vs : seq (seq int)) : seq (seq int) :=
  foldr (fun v rest => if v \in rest then rest else v :: rest) [::] vs.

Lemma distinctP vs : uniq (distinct vs) /\ distinct vs =i vs.
Proof.
elim: vs => [|v vs [u m]] //=; case: ifP => h; split=> //=; rewrite ?h //.
  by move=> x; rewrite m inE; case: eqP => // ->; rewrite -m h.
by move=> x; rewrite !inE m.
Qed.

(* All differences of tables at most a records apart. *)
Definition differences a : seq (seq int) :=
  distinct (flatten [seq [seq difference_of s s' | s' <- conforming margin a cells margins s]
                 | s <- multisets cells a]).

(* LISTING THE SENSITIVITY SPACE. The listed differences are exactly the differences of tables of two
   datasets with the same totals that are at most a records apart. *)
Theorem differences_listed a d :
  is_difference margin a d <-> [seq d c | c <- cells] \in differences a.
Proof.
rewrite /differences (distinctP _).2; split=> [[n [X [Y [same near dE]]]]|].
  (* the records that change, and as many further ones as are missing *)
  pose D := changed X Y; pose pad := nseq (a - distance X Y) c0.
  pose s := [seq X i | i <- enum D] ++ pad; pose s' := [seq Y i | i <- enum D] ++ pad.
  have size_s : size s = a by rewrite size_cat size_map -cardE size_nseq subnKC.
  have size_s' : size s' = a by rewrite size_cat size_map -cardE size_nseq subnKC.
  have countE (Z : dataset C n) (P : pred C) :
      count P [seq Z i | i <- enum D] = #|[set i in D | P (Z i)]|.
    rewrite count_map -sum1_count big_enum_cond -sum1_card.
    by apply: eq_bigl => i; rewrite !inE.
  have same_s : same_listed margin margins s s'.
    apply/allP=> k _; rewrite !map_cat perm_cat2r; apply/allP=> w _ /=.
    rewrite 2!(count_map (fun c => margin c k)) !countE; apply/eqP.
    exact: (same_totals_on k w same (subxx _)).
  have diff c : d c = (Posz (count_mem c s) - Posz (count_mem c s'))%R.
    rewrite dE (@table_change _ _ D) => [|i]; last by rewrite inE negbK => /eqP.
    have cE (Z : dataset C n) : count_in D Z c = count_mem c [seq Z i | i <- enum D].
      rewrite countE /count_in -sum1_card big_mkcond [RHS]big_mkcond; apply: eq_bigr => i _.
      by rewrite !inE; case: (_ != _); case: (_ == _).
    by rewrite !cE !count_cat; lia.
  have [t ht pt] := multisets_complete size_s (introT allP (fun c _ => all_cells c)).
  (* totals and differences do not depend on the order of a list *)
  have size_t : size t = a by rewrite -(perm_size pt).
  apply/flatten_mapP; exists t => //; apply/mapP; exists s'.
    rewrite conforming_lists // size_s' eqxx /=; apply/allP=> k hk.
    by rewrite -(permPl (perm_map _ pt)); apply: (allP same_s).
  by apply: eq_map => c; rewrite diff; have /seq.permP -> := pt.
case/flatten_mapP=> s hs /mapP[s' hs' e].
have size_s := multisets_size hs; have size_s' := conforming_size all_cells size_s hs'.
exists a, (dataset_of a c0 s), (dataset_of a c0 s'); split.
- rewrite -(@conformingP C K W margin a cells margins c0 all_cells all_margins s _ size_s).
  by rewrite list_of_dataset.
- exact: distance_le_n.
move=> c; have tE u : size u = a -> table (dataset_of a c0 u) c = Posz (count_mem c u).
  by move=> eu; rewrite /table (count_list (pred1 c)) list_of_dataset.
rewrite !tE //; have := nth_index c (all_cells c) => ei.
have lt : index c cells < size cells by rewrite index_mem.
have := congr1 (fun v => nth 0%R v (index c cells)) e.
by rewrite /difference_of !(nth_map c) // ei.
Qed.

End Differences.

(* ---- 3 x 3 tables ---- *)

(* Three levels: None, Some false, Some true. *)
Definition level := [finType of option bool].
Definition levels := [:: None; Some false; Some true].
Definition cell3 := [finType of level * level].
Definition cells3 := [seq (x, y) | x <- levels, y <- levels].
Definition sides (c : cell3) (b : bool_finType) : level := if b then c.1 else c.2.

Lemma all_cells3 (c : cell3) : c \in cells3. Proof. by case: c => [[[]|] [[]|]]. Qed.
Lemma all_sides (b : bool_finType) : b \in [:: false; true]. Proof. by case: b. Qed.

Definition space3 a := differences sides cells3 [:: false; true] a.
Definition l1_of (d : seq int) := sumn [seq `|z|%N | z <- d].
Definition l2_of (d : seq int) := sumn [seq `|z|%N ^ 2 | z <- d].
Definition largest (h : seq int -> nat) (s : seq (seq int)) := foldr maxn 0 (map h s).

(* THE SENSITIVITY SPACE OF 3 x 3 TABLES. It has 19 elements under A_2, the paper's list of four-cell
   moves (Delta_1 = 4, Delta_2^2 = 4), and 31 under A_3 (Delta_1 = 6, Delta_2^2 = 6). *)
Theorem three_by_three :
  (let s := space3 2 in [/\ size s = 19, largest l1_of s = 4 & largest l2_of s = 4]) /\
  (let s := space3 3 in [/\ size s = 31, largest l1_of s = 6 & largest l2_of s = 6]).
Proof. by vm_compute. Qed.

(* THE LIST IS THE SPACE. It has no repetitions, and its elements are the differences of tables in the
   general definition. *)
Theorem three_by_three_complete a : uniq (space3 a) /\
  forall d, is_difference sides a d <-> [seq d c | c <- cells3] \in space3 a.
Proof.
split; first by have [] := distinctP (flatten [seq [seq difference_of cells3 s s'
  | s' <- conforming sides a cells3 [:: false; true] s] | s <- multisets cells3 a]).
by move=> d; apply: (differences_listed _ (None, None) all_cells3 all_sides).
Qed.
