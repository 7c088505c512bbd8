(* Count tables and the l1 and l2 norms of their differences. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint.
From mathcomp Require Import zify.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Tables.
(* f and g give every record (I) its cell (C) of a table, before and after. *)
Variables (I C : finType).
Implicit Types (f g : I -> C) (D : {set I}) (c : C).

(* The count table: how many records lie in each cell. *)
Definition table f (c : C) : int := (#|[set i | f i == c]|)%:Z.

(* The l1 norm and the squared l2 norm of the difference of two tables. *)
Definition l1 f g : int := \sum_c `|table f c - table g c|.
Definition l2_squared f g : int := \sum_c (table f c - table g c) ^+ 2.

Lemma l1_sym f g : l1 f g = l1 g f.
Proof. by apply: eq_bigr => c _; rewrite distrC. Qed.

Lemma l2_squared_sym f g : l2_squared f g = l2_squared g f.
Proof. by apply: eq_bigr => c _; rewrite -sqrrN opprB. Qed.

(* How many records of D lie in cell c. *)
Definition count_in D f c := (\sum_(i in D) (f i == c))%N.

(* If only the records of D change, the difference of the tables is that of the counts in D. *)
Lemma table_change D f g c : (forall i, i \notin D -> f i = g i) ->
  table f c - table g c = (count_in D f c)%:Z - (count_in D g c)%:Z.
Proof.
move=> h; pose rest f := (\sum_(i in ~: D) (f i == c))%N.
have E k : table k c = (count_in D k c)%:Z + (rest k)%:Z.
  rewrite /table -PoszD; congr Posz.
  rewrite -sum1_card (eq_bigl (fun i => k i == c)); last by move=> i; rewrite inE.
  rewrite (bigID (mem D)) /= /count_in /rest; congr (_ + _)%N.
    rewrite big_mkcond [RHS]big_mkcond; apply: eq_bigr => i _.
    by case: (i \in D); case: (k i == c).
  rewrite big_mkcond [RHS]big_mkcond; apply: eq_bigr => i _.
  by rewrite inE; case: (i \in D); case: (k i == c).
have e : rest f = rest g by apply: eq_bigr => i; rewrite inE => /h->.
by rewrite !E e opprD addrACA subrr addr0.
Qed.

Lemma count_in_sum D f : (\sum_c count_in D f c)%N = #|D|.
Proof.
rewrite exchange_big /= -sum1_card; apply: eq_bigr => i _.
by rewrite (bigD1 (f i)) //= eqxx big1 ?addn0 // => c /negbTE; rewrite eq_sym => ->.
Qed.

(* The squares of the counts sum to the number of pairs that share a cell. *)
Lemma count_in_squares D f :
  (\sum_c count_in D f c ^ 2)%N = (\sum_(i in D) \sum_(j in D) (f i == f j))%N.
Proof.
transitivity (\sum_c \sum_(i in D) \sum_(j in D) (f i == c) * (f j == c))%N.
  apply: eq_bigr => c _; rewrite -mulnn /count_in big_distrl; apply: eq_bigr => i _.
  by rewrite big_distrr.
rewrite exchange_big; apply: eq_bigr => i _; rewrite exchange_big; apply: eq_bigr => j _ /=.
rewrite (bigD1 (f i)) //= eqxx mul1n big1 ?addn0 1?eq_sym // => c /negbTE.
by rewrite eq_sym => ->.
Qed.

Lemma count_in_products D f g :
  (\sum_c count_in D f c * count_in D g c)%N = (\sum_(i in D) \sum_(j in D) (f i == g j))%N.
Proof.
transitivity (\sum_c \sum_(i in D) \sum_(j in D) (f i == c) * (g j == c))%N.
  apply: eq_bigr => c _; rewrite /count_in big_distrl; apply: eq_bigr => i _.
  by rewrite big_distrr.
rewrite exchange_big; apply: eq_bigr => i _; rewrite exchange_big; apply: eq_bigr => j _ /=.
rewrite (bigD1 (f i)) //= eqxx mul1n big1 ?addn0 1?eq_sym // => c /negbTE.
by rewrite eq_sym => ->.
Qed.

Lemma Posz_sum (J : Type) (s : seq J) (P : pred J) (G : J -> nat) :
  ((\sum_(j <- s | P j) G j)%N)%:Z = \sum_(j <- s | P j) (G j)%:Z.
Proof. by rewrite (big_morph Posz PoszD (erefl 0%:Z)). Qed.

(* If only the records of D change, the l1 distance of the tables is at most 2 |D|. *)
Lemma l1_le D f g : (forall i, i \notin D -> f i = g i) -> l1 f g <= (2 * #|D|)%:Z.
Proof.
move=> h; apply: (@le_trans _ _ (\sum_c ((count_in D f c)%:Z + (count_in D g c)%:Z))).
  apply: ler_sum => c _; rewrite (table_change _ h); apply: le_trans (ler_norm_sub _ _) _.
  by rewrite !ger0_norm.
by rewrite big_split /= -!Posz_sum !count_in_sum mul2n -addnn.
Qed.

(* If only the records of D change, the squared l2 distance is exactly: the pairs in D that share a
   cell before, plus those that share one after, minus twice the pairs of a cell before and the same
   cell after. *)
Lemma l2_squared_pairs D f g : (forall i, i \notin D -> f i = g i) ->
  l2_squared f g = (\sum_(i in D) \sum_(j in D) ((f i == f j) + (g i == g j)))%N%:Z
                   - (2 * \sum_(i in D) \sum_(j in D) (f i == g j))%N%:Z.
Proof.
move=> h; transitivity (\sum_c ((count_in D f c ^ 2)%N%:Z + (count_in D g c ^ 2)%N%:Z
    - (2 * (count_in D f c * count_in D g c))%N%:Z)).
  apply: eq_bigr => c _; rewrite (table_change _ h); lia.
rewrite sumrB big_split /= -!Posz_sum !count_in_squares -PoszD -big_distrr /= count_in_products.
congr (Posz _ - _); rewrite -big_split /=; apply: eq_bigr => i _; by rewrite -big_split.
Qed.

Lemma l2_squared_le D f g : (forall i, i \notin D -> f i = g i) ->
  l2_squared f g <= (\sum_(i in D) \sum_(j in D) ((f i == f j) + (g i == g j)))%N%:Z.
Proof. by move=> h; rewrite (l2_squared_pairs h) ler_subl_addr ler_addl. Qed.

(* The counting argument. A person p and carriers E change, nobody else. Before and
   after, no carrier shares a cell with the person; no two carriers share a cell both before and
   after. Then the squared l2 distance is at most k^2 + k + 2, k the number of carriers ... *)
Lemma star_pairs (p : I) (E : {set I}) f g (together : rel I) : p \notin E ->
  (forall j, j \in E -> (f p != f j) && (g p != g j)) ->
  (forall j i, j \in E -> i \in E -> j != i -> ((f j == f i) + (g j == g i) <= together j i)%N) ->
  (\sum_(i in p |: E) \sum_(j in p |: E) ((f i == f j) + (g i == g j))
   <= 2 * #|E| + 2 + \sum_(i in E) \sum_(j in E | j != i) together i j)%N.
Proof.
move=> pE hp hE; rewrite big_setU1 //= big_setU1 //= !eqxx.
rewrite [X in (_ + X + _)%N]big1; last first.
  by move=> j jE; have /andP[/negbTE -> /negbTE ->] := hp j jE.
rewrite addn0 addnC addnAC leq_add2r.
have -> : (2 * #|E| = \sum_(i in E) 2)%N by rewrite sum_nat_const mulnC.
rewrite -big_split /=; apply: leq_sum => i iE; rewrite big_setU1 //=.
have /andP[h1 h2] := hp i iE.
rewrite (eq_sym (f i)) (eq_sym (g i)) (negbTE h1) (negbTE h2) add0n.
rewrite (bigD1 i) //= !eqxx leq_add2l; apply: leq_sum => j /andP[jE ji].
by apply: hE; rewrite // eq_sym.
Qed.

Lemma star_l2 (p : I) (E : {set I}) f g : p \notin E ->
  (forall i, i \notin p |: E -> f i = g i) ->
  (forall j, j \in E -> (f p != f j) && (g p != g j)) ->
  (forall j i, j \in E -> i \in E -> j != i -> ~~ ((f j == f i) && (g j == g i))) ->
  l2_squared f g <= (#|E| ^ 2 + #|E| + 2)%N%:Z.
Proof.
move=> pE hD hp hE; apply: le_trans (l2_squared_le hD) _; rewrite lez_nat.
apply: leq_trans (star_pairs (together := fun _ _ => true) pE hp _) _.
  by move=> j i jE iE ji; have := hE j i jE iE ji; case: (f j == f i); case: (g j == g i).
have -> : (\sum_(i in E) \sum_(j in E | j != i) true = #|E| * #|E|.-1)%N.
  rewrite -sum_nat_const; apply: eq_bigr => i iE.
  rewrite (eq_bigl (mem (E :\ i))); last by move=> j; rewrite !inE andbC.
  by rewrite sum1_card (cardsD1 i E) iE.
by case: #|E| => [|k] //=; rewrite -mulnn; lia.
Qed.

End Tables.

(* TABLES BELOW A PUBLISHED BLOCK. A table whose cell is a function of one record's published value is
   the same for all datasets with the same numbers of records by published value. *)
Lemma table_of_totals (I C W : finType) (u v : I -> W) (h : W -> C) :
  (forall w, #|[set i | u i == w]| = #|[set i | v i == w]|) ->
  forall c, table (fun i => h (u i)) c = table (fun i => h (v i)) c.
Proof.
move=> same c; rewrite /table; congr Posz.
have E (k : I -> W) : #|[set i | h (k i) == c]| = (\sum_(w | h w == c) #|[set i | k i == w]|)%N.
  rewrite -sum1_card (partition_big k (fun w => h w == c)) /=; last by move=> i; rewrite inE.
  apply: eq_bigr => w hw; rewrite -sum1_card; apply: eq_bigl => i; rewrite !inE.
  by case: (eqVneq (k i) w) => [->|_]; rewrite ?hw ?andbF.
by rewrite !E; apply: eq_bigr => w _.
Qed.
